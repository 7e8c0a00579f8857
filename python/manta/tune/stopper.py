# SPDX-License-Identifier: Apache-2.0
"""When trials end, and when the experiment does: stop= of tune.run and of RunConfig."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from manta._front import refuse as _refuse
from manta.tune._analysis import value_of

__all__ = ["CombinedStopper", "ExperimentPlateauStopper", "FunctionStopper",
           "MaximumIterationStopper", "NoopStopper", "Stopper", "TimeoutStopper",
           "TrialPlateauStopper"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told

Result = dict[str, Any]


class Stopper:
    """Asked about every report, in the driver. One of your own overrides these two."""

    def __call__(self, trial_id: str, result: Result) -> bool:
        """Whether the trial ends with this report."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(self, trial_id, result)")

    def stop_all(self) -> bool:
        """Whether the whole experiment ends; asked after every report."""
        return False


class NoopStopper(Stopper):
    """Ends nothing."""

    def __call__(self, trial_id: str, result: Result) -> bool:
        return False


class FunctionStopper(Stopper):
    """A function of (trial_id, result) as a Stopper."""

    def __init__(self, function: Callable[[str, Result], bool]):
        if not callable(function):
            raise TypeError(f"stop must be a dict, a Stopper or a function of (trial_id, result), "
                            f"not {function!r}")
        self._function = function

    def __call__(self, trial_id: str, result: Result) -> bool:
        return bool(self._function(trial_id, result))


class CombinedStopper(Stopper):
    """Ends a trial, or everything, when one of these does."""

    def __init__(self, *stoppers: Stopper):
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: Result) -> bool:
        return any([s(trial_id, result) for s in self._stoppers])  # each counts its reports

    def stop_all(self) -> bool:
        return any(s.stop_all() for s in self._stoppers)


class MaximumIterationStopper(Stopper):
    """Ends a trial at its report number max_iter."""

    def __init__(self, max_iter: int):
        self._most = max_iter
        self._seen: dict[str, int] = {}

    def __call__(self, trial_id: str, result: Result) -> bool:
        self._seen[trial_id] = self._seen.get(trial_id, 0) + 1
        return self._seen[trial_id] >= self._most


class TimeoutStopper(Stopper):
    """Ends everything when the experiment has run for so long: seconds, or a timedelta. (Looked at
    with every report; time_budget_s of tune.run needs none.)"""

    def __init__(self, timeout: float | timedelta):
        self._limit = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        self._began: float | None = None

    def __call__(self, trial_id: str, result: Result) -> bool:
        self._began = self._began or time.monotonic()
        return False

    def stop_all(self) -> bool:
        return self._began is not None and time.monotonic() - self._began >= self._limit


def _checked_mode(mode: str | None) -> None:
    if mode not in (None, "min", "max"):
        raise ValueError(f'mode must be "min" or "max", not {mode!r}')


class TrialPlateauStopper(Stopper):
    """Ends a trial whose newest num_results values of a metric differ by a standard deviation of at
    most std. metric_threshold: not before the metric is that good, with mode."""

    def __init__(self, metric: str, std: float = 0.01, num_results: int = 4,
                 grace_period: int = 4, metric_threshold: float | None = None,
                 mode: str | None = None):
        _checked_mode(mode)
        if metric_threshold is not None and mode is None:
            raise ValueError('metric_threshold needs mode="min" or mode="max"')
        self._metric, self._std, self._mode = metric, std, mode
        self._count, self._grace, self._threshold = num_results, grace_period, metric_threshold
        self._reports: dict[str, int] = {}
        self._values: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: Result) -> bool:
        if (value := value_of(result, self._metric)) is None:
            return False
        values = self._values.setdefault(trial_id, deque(maxlen=self._count))
        values.append(value)
        self._reports[trial_id] = self._reports.get(trial_id, 0) + 1
        if self._reports[trial_id] < self._grace or len(values) < self._count:
            return False
        if self._threshold is not None:
            bad = value > self._threshold if self._mode == "min" else value < self._threshold
            if bad:
                return False
        return statistics.pstdev(values) <= self._std


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when the best `top` values of a metric differ by a standard deviation of
    at most std, at `patience` reports on end more than at the first."""

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min",
                 patience: int = 0):
        _checked_mode(mode)
        if top <= 1 or patience < 0 or std <= 0:
            raise ValueError("top must be above 1, patience at least 0 and std above 0")
        self._metric, self._std, self._top = metric, std, top
        self._sign, self._patience = (1 if mode == "min" else -1), patience
        self._best: list[float] = []
        self._stays = 0

    def __call__(self, trial_id: str, result: Result) -> bool:
        if (value := value_of(result, self._metric)) is not None:
            self._best = sorted([*self._best, self._sign * value])[:self._top]
            self._stays = self._stays + 1 if self._is_flat() else 0
        return self.stop_all()

    def _is_flat(self) -> bool:
        return len(self._best) == self._top and statistics.pstdev(self._best) <= self._std

    def stop_all(self) -> bool:
        return self._stays > self._patience


def stopper_of(given: Any) -> Stopper | None:
    """What stop= names, unless it is a dict or nothing."""
    if given is None or isinstance(given, dict):
        return None
    if isinstance(given, type):
        raise TypeError(f"stop must be an object, not the class {given.__name__}\n"
                        f"hint: stop={given.__name__}(…)")
    if isinstance(given, (list, tuple)):
        found = [stopper_of(s) for s in given]
        return CombinedStopper(*(s for s in found if s is not None))
    if isinstance(given, Stopper) or hasattr(given, "stop_all"):
        stopper: Stopper = given
        return stopper
    return FunctionStopper(given)


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

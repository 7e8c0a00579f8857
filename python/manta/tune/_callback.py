# SPDX-License-Identifier: Apache-2.0
"""Callbacks of an experiment: told in the driver of what its trials do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manta._front.callbacks import Failures, is_of_trials
from manta._front.sinks import SinkCallback, is_fed_trials

BEGAN, ROW, SAVED, PAUSED, COPIED, FAILED, ENDED, NOTE = range(8)  # manta_event_kind


class Callback:
    """What to override. `trials` is a list of all of them, made when it is asked for."""

    on_error = "continue"  # "raise": an exception of this callback ends the experiment
    raise_errors = False  # True: the same

    def setup(self, stop: Any = None, num_samples: int | None = None,
              total_num_samples: int | None = None, **info: Any) -> None:
        """The experiment begins; info: directory, metric, mode."""

    def get_state(self) -> dict[str, Any] | None:
        """Taken: an experiment that is resumed tells of its events anew."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """See get_state."""

    def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
        """Something has happened, and is told of next."""

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        """It has been told."""

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial runs, for the first time or again."""

    def on_trial_restore(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """… again, from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has saved a checkpoint."""

    def on_checkpoint(self, iteration: int, trials: Any, trial: Any, checkpoint: Any,
                      **info: Any) -> None:
        """The same, with its newest checkpoint on disk."""

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any],
                        **info: Any) -> None:
        """A trial has reported."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has finished, or was stopped."""

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has failed and will be tried again."""

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has failed for good."""

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        """The experiment is over."""


class Trials(Sequence[Any]):
    """All trials, each made when it is asked for: an experiment may have many."""

    def __init__(self, analysis: Any):
        self._analysis = analysis

    def __len__(self) -> int:
        return len(self._analysis)

    def __getitem__(self, i: Any) -> Any:
        return self._analysis.trials[i]


class Caller:
    """Calls a list of callbacks; one that fails is shown, and the experiment goes on."""

    def __init__(self, callbacks: list[Any]):
        self.callbacks = callbacks
        self._failures = Failures("experiment")

    def __bool__(self) -> bool:
        return bool(self.callbacks)

    def call(self, method: str, *args: Any, **kwargs: Any) -> None:
        for c in self.callbacks:
            if (function := getattr(c, method, None)) is None:
                continue
            try:
                function(*args, **kwargs)
            except Exception as e:
                if not self._failures.took(c, method, e):
                    raise
        if method == "on_experiment_end":
            self._failures.sum_up()

    def tell(self, kind: int, trials: Trials, trial: Any, result: dict[str, Any]) -> None:
        """One event of a trial."""
        at = trial.iteration
        self.call("on_step_begin", at, trials)
        if kind == BEGAN:
            self.call("on_trial_start", at, trials, trial)
            if trial.iteration > 0:
                self.call("on_trial_restore", at, trials, trial)
        elif kind == ROW:
            self.call("on_trial_result", at, trials, trial, result)
        elif kind == SAVED:
            self.call("on_trial_save", at, trials, trial)
            if any(_overrides(c, "on_checkpoint") for c in self.callbacks):
                self.call("on_checkpoint", at, trials, trial, trial.checkpoint)
        elif kind == FAILED:
            self.call("on_trial_recover", at, trials, trial)
        elif kind == ENDED:
            bad = trial.status == "ERROR"
            self.call("on_trial_error" if bad else "on_trial_complete", at, trials, trial)
        self.call("on_step_end", at, trials)


def _overrides(callback: Any, method: str) -> bool:
    return getattr(type(callback), method, None) not in (None, getattr(Callback, method))


def checked(given: Any) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"callbacks must be a list, not {given!r}\nhint: callbacks=[…]")
    for c in given:
        if isinstance(c, type):
            raise TypeError(f"a callback is an object, not the class {c.__name__}\n"
                            f"hint: callbacks=[{c.__name__}()]")
        if not isinstance(c, SinkCallback) and not is_of_trials(c):
            raise TypeError(f"{c!r} is not a callback of experiments: it has no on_trial_result\n"
                            f"hint: derive a class from manta.tune.Callback")
    return list(given)


def sinks_of(callbacks: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """What writes or sends the reports of every trial, in the process of the experiment's sinks."""
    return [(c._kind, c._options) for c in callbacks if is_fed_trials(c)]


def called(callbacks: list[Any]) -> list[Any]:
    """The others."""
    return [c for c in callbacks if not is_fed_trials(c)]

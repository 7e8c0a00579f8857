# SPDX-License-Identifier: Apache-2.0
"""Searchers and schedulers of the user's, as libmanta asks them."""

from __future__ import annotations

import math
from typing import Any

from manta.tune import _space as _space
from manta.tune._analysis import Trial, completed
from manta.tune.schedulers import ResourceChangingScheduler, TrialScheduler
from manta.tune.search._native import BasicVariantGenerator
from manta.tune.search._searcher import Searcher
from manta.tune._trainable import checked

GO_ON, STOP, PAUSE, COPY = range(4)  # manta_verdict


def trial_id(number: int) -> str:
    return f"{number:05}"


class OwnSearcher:
    """A Searcher, asked by number. Its configs are laid over the fixed part of the space."""

    def __init__(self, search: Searcher, num_samples: int, config: dict[str, Any]):
        self.search = search
        points = getattr(search, "points", [])
        grids = _grids(config) if isinstance(search, BasicVariantGenerator) else 1
        self.samples = num_samples if num_samples < 0 else num_samples * grids + len(points)
        self._points = list(points)
        self._fixed = {k: v for k, v in config.items() if not _has_domain(v)}

    def suggest(self, number: int, had: Any) -> Any:
        """A config; None: no more; False: not now. had: the config that the trial has already."""
        found = (self._points[number] if number < len(self._points)
                 else self.search.suggest(trial_id(number)))
        if had is not None:
            return had
        if found is None:
            return False
        if isinstance(found, str):
            return None
        return {**self._fixed, **found}

    def report(self, number: int, row: Any) -> None:
        self.search.on_trial_result(trial_id(number), completed(row, trial_id(number), None))

    def complete(self, number: int, row: Any, failed: int) -> None:
        name = trial_id(number)
        self.search.on_trial_complete(name, completed(row, name, None) or None, bool(failed))


def _has_domain(o: Any) -> bool:
    if isinstance(o, _space.Domain):
        return True
    if isinstance(o, dict):
        return set(o) == {"grid_search"} or any(_has_domain(v) for v in o.values())
    return isinstance(o, list) and any(_has_domain(v) for v in o)


def _grids(o: Any) -> int:
    """Combinations of all grids."""
    if isinstance(o, dict) and set(o) == {"grid_search"}:
        return len(o["grid_search"])
    values = o.values() if isinstance(o, dict) else o if isinstance(o, list) else ()
    return math.prod(_grids(v) for v in values)


class OwnScheduler:
    """A TrialScheduler, asked by number."""

    def __init__(self, scheduler: TrialScheduler):
        self.scheduler = scheduler
        self._paused: list[int] = []

    def begin(self, number: int, config: Any) -> None:
        self.scheduler.on_trial_add(trial_id(number), config)

    def report(self, number: int, row: Any) -> Any:
        name = trial_id(number)
        said = self.scheduler.on_trial_result(name, completed(row, name, None))
        verdicts = {TrialScheduler.CONTINUE: GO_ON, TrialScheduler.PAUSE: PAUSE,
                    TrialScheduler.STOP: STOP, None: GO_ON}
        if said not in verdicts:
            raise ValueError(f"{type(self.scheduler).__name__}.on_trial_result must return "
                             f"CONTINUE, PAUSE or STOP, not {said!r}")
        if verdicts[said] == PAUSE:
            self._paused.append(number)
        return verdicts[said], 0, None

    def end(self, number: int, row: Any) -> None:
        if number in self._paused:
            self._paused.remove(number)
        name = trial_id(number)
        self.scheduler.on_trial_complete(name, completed(row, name, None) or None)

    def next(self) -> Any:
        if not self._paused:
            return None
        chosen = self.scheduler.choose_trial_to_run([trial_id(n) for n in self._paused])
        if chosen is None:
            return None
        number = int(chosen)
        self._paused.remove(number)
        return number, GO_ON, 0, None


class Allocator:
    """What a trial gets from here on, as the function of a ResourceChangingScheduler says. It is
    the controller that the function is given, too."""

    def __init__(self, experiment: Any, scheduler: ResourceChangingScheduler):
        self._experiment, self._scheduler = experiment, scheduler
        self._has: dict[int, dict[str, float]] = {}

    def get_trials(self) -> list[Trial]:
        tune = self._experiment.tune
        return [Trial(tune, i) for i in range(tune.count())]

    def get_live_trials(self) -> list[Trial]:
        return [t for t in self.get_trials() if t.status in ("PENDING", "RUNNING", "PAUSED")]

    def __call__(self, number: int, row: Any) -> Any:
        trial = Trial(self._experiment.tune, number)
        result = completed(row, trial.trial_id, trial.config)
        wanted = self._scheduler.allocate(self, trial, result, self._scheduler.base)
        if wanted is None:
            return None
        figures = checked(wanted)
        if figures == self._has.get(number, self._experiment.given.figures):
            return None
        self._has[number] = figures
        names = {"CPU": "cpus", "GPU": "gpus", "workers": "workers"}
        unknown = sorted(set(figures) - set(names))
        if unknown:
            raise ValueError(f"resources of a running trial that can change are cpu and gpu, not "
                             f"{', '.join(unknown)}")
        return {names[k]: v for k, v in figures.items()}

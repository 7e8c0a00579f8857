# SPDX-License-Identifier: Apache-2.0
"""Searchers and schedulers of the user's, as libmanta asks them."""

from __future__ import annotations

import json
import math
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from manta.tune import _space as _space
from manta.tune._analysis import Trial, completed
from manta.tune.schedulers import ResourceChangingScheduler, TrialScheduler
from manta.tune.search._native import BasicVariantGenerator
from manta.tune.search._searcher import ConcurrencyLimiter, Repeater, Searcher
from manta.tune._resources import RESOURCES, PlacementGroupFactory, checked

GO_ON, STOP, PAUSE, COPY = range(4)  # manta_verdict


def trial_id(number: int) -> str:
    return f"{number:05}"


class OwnSearcher:
    """A Searcher, asked by number. Its configs are laid over the fixed part of the space."""

    def __init__(self, search: Searcher, num_samples: int, config: dict[str, Any]):
        self.search, asked = search, _innermost(search)
        each, first = 1, 0
        if isinstance(asked, BasicVariantGenerator):
            each, first = grids(config), len(asked.points)
        _check_taken(asked, config)
        self.samples = num_samples if num_samples < 0 else (
            first + max(0, num_samples - first) * each)
        self._fixed = {k: v for k, v in config.items() if not _space.has_domain(v)}

    def suggest(self, number: int, had: Any) -> Any:
        """A config; None: no more; False: not now. had: the config that the trial has already."""
        found = self.search.suggest(trial_id(number))
        if had is not None:
            return had
        if found is None:
            return False
        if isinstance(found, str):
            return None
        return {**self._fixed, **found}

    def report(self, number: int, row: Any) -> None:
        self.search.on_trial_result(trial_id(number), completed(row, trial_id(number), None))

    def complete(self, number: int, row: Any, failed: bool = False) -> None:
        name = trial_id(number)
        self.search.on_trial_complete(name, completed(row, name, None) or None, failed)

    def fail(self, number: int, row: Any) -> None:
        self.complete(number, row, failed=True)


def _innermost(search: Searcher) -> Searcher:
    """Without what limits or repeats it."""
    while isinstance(search, (ConcurrencyLimiter, Repeater)):
        search = search.searcher
    return search


def _check_taken(search: Searcher, config: dict[str, Any]) -> None:
    """A class that does not ask for the space makes configs by itself: domains would be lost."""
    if type(search).set_search_properties is Searcher.set_search_properties and varied(config):
        name = type(search).__name__
        raise ValueError(f"{', '.join(varied(config))} of the config would not be chosen: {name} "
                         f"takes no space, and its suggest() makes the configs\nhint: def "
                         f"set_search_properties(self, metric, mode, config, **spec) of {name} "
                         f"may keep the space and return True")


def varied(o: Any, above: str = "") -> list[str]:
    """The parameters of a config that trials get different values of, as "outer/inner"."""
    if not isinstance(o, dict):
        return []
    found: list[str] = []
    for key, value in o.items():
        if isinstance(value, dict) and set(value) != {"grid_search"}:
            found += varied(value, f"{above}{key}/")
        elif _space.has_domain(value):
            found.append(f"{above}{key}")
    return found


def grids(o: Any) -> int:
    """Combinations of all grids."""
    if isinstance(o, dict) and set(o) == {"grid_search"}:
        return len(o["grid_search"])
    values = o.values() if isinstance(o, dict) else o if isinstance(o, list) else ()
    return math.prod(grids(v) for v in values)


class OwnScheduler:
    """A TrialScheduler, asked by number."""

    def __init__(self, scheduler: TrialScheduler):
        self.scheduler = scheduler
        self._paused: list[int] = []

    def begin(self, number: int, config: Any) -> None:
        self.scheduler.on_trial_add(trial_id(number), config)

    def report(self, number: int, row: Any) -> Any:
        said = self._judge(number, completed(row, trial_id(number), None))
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
        self._complete(number, completed(row, trial_id(number), None) or None)

    def _judge(self, number: int, result: Any) -> Any:
        return self.scheduler.on_trial_result(trial_id(number), result)

    def _complete(self, number: int, result: Any) -> None:
        self.scheduler.on_trial_complete(trial_id(number), result)

    def _choose(self, paused: list[str]) -> str | None:
        chosen: str | None = self.scheduler.choose_trial_to_run(paused)
        return chosen

    def next(self) -> Any:
        if not self._paused:
            return None
        chosen = self._choose([trial_id(n) for n in self._paused])
        if chosen is None:
            return None
        number = int(chosen)
        self._paused.remove(number)
        return number, GO_ON, 0, None


class Controller:
    """An experiment, as schedulers and functions that were written for Ray ask it."""

    def __init__(self, experiment: Any):
        self._experiment = experiment
        self.paused: list[str] = []
        self._resource_updater = self

    def get_num_cpus(self) -> float:
        return self._of_host("CPU")

    def get_num_gpus(self) -> float:
        return self._of_host("GPU")

    def _of_host(self, name: str) -> float:
        import manta
        return float(manta.cluster_resources().get(name, 0))

    def get_trials(self) -> list[Trial]:
        tune = self._experiment.tune
        return [Trial(tune, i) for i in range(tune.count())]

    def get_live_trials(self) -> list[Trial]:
        return [t for t in self.get_trials() if t.status in ("PENDING", "RUNNING", "PAUSED")]

    def trial(self, number: int, config: Any = None) -> Any:
        """Of an experiment that is only about to go on, no more than its config."""
        if hasattr(self._experiment, "tune"):
            return Trial(self._experiment.tune, number)
        return SimpleNamespace(trial_id=trial_id(number), config=config, last_result={},
                               status=Trial.PENDING)


class RayScheduler(OwnScheduler):
    """A TrialScheduler whose methods take the experiment, a trial, and its result."""

    def __init__(self, scheduler: TrialScheduler, experiment: Any):
        super().__init__(scheduler)
        self._controller = Controller(experiment)

    def begin(self, number: int, config: Any) -> None:
        self.scheduler.on_trial_add(self._controller, self._controller.trial(number, config))

    def _judge(self, number: int, result: Any) -> Any:
        trial = self._controller.trial(number)
        return self.scheduler.on_trial_result(self._controller, trial, result)

    def _complete(self, number: int, result: Any) -> None:
        trial = self._controller.trial(number)
        self.scheduler.on_trial_complete(self._controller, trial, result)

    def _choose(self, paused: list[str]) -> str | None:
        self._controller.paused = paused
        chosen = self.scheduler.choose_trial_to_run(self._controller)
        name = getattr(chosen, "trial_id", chosen)
        return name if name in paused else None  # those that have not begun come in order


_HOOKS = ("on_trial_add", "on_trial_result", "on_trial_complete", "choose_trial_to_run")


def own_scheduler(asked: TrialScheduler, experiment: Any) -> OwnScheduler | None:
    """One that decides in Python; None: libmanta's do."""
    cls = type(asked)
    own = [name for name in _HOOKS if getattr(cls, name) is not getattr(TrialScheduler, name)]
    if asked.native is not None and not own:
        return None
    if asked.native not in (None, "fifo"):
        raise TypeError(f"{cls.__name__} has its own {own[0]}, and derives from a scheduler that "
                        f"decides inside of libmanta\nhint: class {cls.__name__}(TrialScheduler)")
    for_ray = any(name in own and len(signature(getattr(asked, name)).parameters) == 3
                  for name in ("on_trial_result", "on_trial_complete"))
    return RayScheduler(asked, experiment) if for_ray else OwnScheduler(asked)


class Allocator(Controller):
    """What a trial gets from here on, as the function of a ResourceChangingScheduler says. It is
    the controller that the function is given, too."""

    def __init__(self, experiment: Any, scheduler: ResourceChangingScheduler):
        super().__init__(experiment)
        self._scheduler = scheduler
        self._has: dict[int, dict[str, float]] = {}
        # By the name that Ray's own example of such a function uses.
        scheduler._base_trial_resources = PlacementGroupFactory([experiment.given.figures])

    def __call__(self, number: int, row: Any) -> Any:
        trial = Trial(self._experiment.tune, number)
        result = completed(row, trial.trial_id, trial.config)
        wanted = self._scheduler.allocate(self, trial, result, self._scheduler)
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
        Path(trial.logdir, RESOURCES).write_text(json.dumps(figures))
        return {names[k]: v for k, v in figures.items()}

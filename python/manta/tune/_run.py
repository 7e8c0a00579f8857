# SPDX-License-Identifier: Apache-2.0
"""tune.run: an experiment from its beginning to its end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manta import _manta
from manta._names import arguments
from manta._runtime import frames as _frames
from manta.tune import _callback as _callback
from manta.tune import _space as _space
from manta.tune import _trainable as _trainable
from manta.tune._adapt import Allocator, OwnScheduler, OwnSearcher
from manta.tune._analysis import ExperimentAnalysis, Trial, TuneError, completed
from manta.tune.schedulers import (FIFOScheduler, ResourceChangingScheduler, TrialScheduler,
                                   create_scheduler)
from manta.tune.search import BasicVariantGenerator, Searcher, create_searcher
from manta.tune._table import Table

BEGAN, ROW, SAVED, PAUSED, COPIED, FAILED, ENDED, NOTE = range(8)  # manta_event_kind
_OURS = {"training_iteration": "_training_iteration"}  # Ray's names of what every row has


@_frames.folded
@arguments
def run(run_or_experiment: Any, config: dict[str, Any] | None = None, num_samples: int = 1, *,
        name: str | None = None, metric: str | None = None, mode: str | None = None,
        stop: Any = None, time_budget_s: Any = None, resources_per_trial: Any = None,
        local_dir: str | os.PathLike[str] | None = None,
        storage_path: str | os.PathLike[str] | None = None, search_alg: Any = None,
        scheduler: Any = None, keep_checkpoints_num: int | None = None, checkpoint_freq: int = 0,
        checkpoint_at_end: bool = False, verbose: int = 1, max_failures: int = 0,
        fail_fast: bool = False, restore: str | None = None, resume: Any = False,
        reuse_actors: bool = False, raise_on_failed_trial: bool = True, callbacks: Any = None,
        max_concurrent_trials: int | None = None, seed: int | None = None,
        **others: Any) -> ExperimentAnalysis:
    """Runs a function, a class or a trainable with many configs, and says how they did.

    config: a dict with domains in it (tune.uniform(…), tune.choice(…), tune.grid_search(…)).
    num_samples: how often it is drawn, and every grid gone through; -1: until time_budget_s.
    metric, mode: what trials report, and whether "min" or "max" of it is best. stop: {"loss": …,
    "training_iteration": 10}: a trial ends when it has reported at least so much; or a function of
    (trial_id, result). resources_per_trial: {"cpu": 1, "gpu": 0.5}. search_alg chooses configs,
    scheduler which trials go on. max_failures: how often a trial is tried again from its newest
    checkpoint. resume: True: go on with the experiment `name`, or the newest one; its trials that
    ended do not run again. seed: the same one gives the same configs."""
    _ignore(others)
    experiment = Experiment(locals_of(locals()))
    return experiment.to_end()


def locals_of(given: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k != "others"}


# Of Ray's tune.run, for things that manta does not have or does always.
_IGNORED = frozenset((
    "progress_reporter", "log_to_file", "trial_name_creator", "trial_dirname_creator",
    "chdir_to_trial_dir", "sync_config", "export_formats", "checkpoint_score_attr",
    "checkpoint_keep_all_freq", "server_port", "checkpoint_config", "queue_trials",
    "trial_executor", "remote", "_remote", "experiment_name", "global_checkpoint_period",
    "ray_auto_init", "run_errored_only", "with_server", "sync_to_cloud", "upload_dir",
    "sync_to_driver", "loggers"))


def _ignore(others: dict[str, Any]) -> None:
    unknown = sorted(set(others) - _IGNORED)
    if unknown:
        raise TypeError(f"tune.run() got an unexpected keyword argument {unknown[0]!r}")
    if others:
        import warnings
        warnings.warn(f"manta ignores {', '.join(sorted(others))} of tune.run", stacklevel=4)


def _choice(what: str, given: Any, base: type, by_name: Callable[[str], Any], usual: Any) -> Any:
    if given is None:
        return usual()
    if isinstance(given, str):
        return by_name(given)
    if isinstance(given, type):
        raise TypeError(f"{what} must be an object, not the class {given.__name__}\n"
                        f"hint: {what}={given.__name__}(…)")
    if not isinstance(given, base):
        raise TypeError(f"{what} must be a {base.__name__}, not {given!r}")
    return given


class Experiment:
    """One experiment: what was asked for as libmanta takes it, and its events."""

    def __init__(self, asked: dict[str, Any]):
        self.asked = asked
        self.scheduler: Any = _choice("scheduler", asked["scheduler"], TrialScheduler,
                                      create_scheduler, FIFOScheduler)
        self.search: Any = _choice("search_alg", asked["search_alg"], Searcher, create_searcher,
                                   BasicVariantGenerator)
        self.metric = asked["metric"] or self.scheduler.metric or self.search.metric
        self.mode = asked["mode"] or self.scheduler.mode or self.search.mode
        if self.mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {self.mode!r}')
        if self.metric is not None and self.mode is None:
            raise ValueError('metric without mode\nhint: mode="min" or mode="max"')
        self.config = self.scheduler.complete(asked["config"] or {})
        self.callbacks = _callback.Caller(_callback.checked(asked["callbacks"]))
        self.given = _trainable.given(
            asked["run_or_experiment"], asked["resources_per_trial"],
            _trainable.Saving(self._save_every(), asked["checkpoint_at_end"],
                              asked["stop"] if self._stops_itself() else {}))
        self.tune = _manta.tune_start(self.given.job.pack(self.given.name), **self._options())

    def _save_every(self) -> int:
        """A class in steps saves for a scheduler that goes back to what was saved."""
        every: int = self.asked["checkpoint_freq"]
        plain = ("fifo", "asha", "median")
        return every or int(self.scheduler.native not in plain or self.asked["max_failures"] != 0
                            or isinstance(self.scheduler, ResourceChangingScheduler))

    def _stops_itself(self) -> bool:
        """A class in steps that saves at its end: it has to know when that is."""
        a = self.asked
        return (isinstance(a["run_or_experiment"], type) and isinstance(a["stop"], dict)
                and bool(a["checkpoint_at_end"]))

    # --- for libmanta -----------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        a = self.asked
        options: dict[str, Any] = {
            "trainer": self.given.trainer, "samples": a["num_samples"],
            "metric": _OURS.get(self.metric, self.metric), "maximize": self.mode == "max",
            "concurrency": a["max_concurrent_trials"] or self._limit(), "reuse": a["reuse_actors"],
            "max_failures": a["max_failures"], "fail_fast": bool(a["fail_fast"]),
            "time_budget": _seconds(a["time_budget_s"]),
            "keep_last": a["keep_checkpoints_num"] or 0,
            "name": a["name"] or self.given.name.rpartition(".")[2],
            "logdir": self._directory(), "resume": self._resumed(),
            "retry_failed": a["resume"] == "ERRORED_ONLY"}
        return options | self._stop() | self._search() | self._schedule()

    def _limit(self) -> int:
        limit: int = getattr(self.search, "max_concurrent", 0)
        return limit if isinstance(self.search, BasicVariantGenerator) else 0

    def _directory(self) -> str | None:
        given = self.asked["storage_path"] or self.asked["local_dir"]
        return None if given is None else str(Path(given).expanduser())

    def _resumed(self) -> str | None:
        resume = self.asked["resume"]
        if not resume:
            return None
        given = self.asked["restore"] or self.asked["name"]
        try:
            return _found(Path(self._directory() or _results()),
                          given or self.given.name.rpartition(".")[2])
        except FileNotFoundError:
            if resume == "AUTO":
                return None
            raise

    def _stop(self) -> dict[str, Any]:
        stop = self.asked["stop"]
        if stop is None or self._stops_itself():
            return {}
        if isinstance(stop, dict) and "time_total_s" not in stop:
            return {"stop": {_OURS.get(k, k): v for k, v in stop.items()}}
        if isinstance(stop, dict):
            return {"stop_fn": _at_least(stop)}
        if not callable(stop):
            raise TypeError(f"stop must be a dict or a function of (trial_id, result), not "
                            f"{stop!r}")
        return {"stop_fn": _asks(stop)}

    def _seed(self) -> int:
        """As asked for; else that of the experiment that goes on; else any."""
        for seed in (self.asked["seed"], getattr(self.search, "seed", None)):
            if seed is not None:
                return int(seed)
        resumed = self._resumed()
        if resumed is None:
            return int.from_bytes(os.urandom(7), "little")
        was = _manta.tune_open(resumed)
        seed = was.info()["seed"]
        was.close()
        return int(seed)

    def _search(self) -> dict[str, Any]:
        calls: list[Callable[..., Any]] = []
        config, seed = self.config, self._seed()
        native = getattr(self.search, "native", "")
        spec = _space.spec_of(config, calls)
        if native and not calls and not getattr(self.search, "points", None):
            space = getattr(self.search, "space", None)
            if space is not None and config:
                raise ValueError("two spaces: config of tune.run, and that of search_alg")
            return {"space": _space.spec_of(space, calls) if space is not None else spec,
                    "searcher": native, "searcher_options": self.search.options() or None,
                    "seed": seed}
        if not self.search.set_search_properties(self.metric, self.mode, config, seed=seed):
            raise ValueError("two spaces: config of tune.run, and that of search_alg")
        own = OwnSearcher(self.search, self.asked["num_samples"], config)
        return {"own_searcher": own, "seed": seed, "samples": own.samples}

    def _schedule(self) -> dict[str, Any]:
        asked = self.scheduler
        out: dict[str, Any] = {"time_key": _OURS.get(asked.time_attr, asked.time_attr)}
        if isinstance(asked, ResourceChangingScheduler):
            out["resources_fn"] = Allocator(self, asked)
            asked = asked.base
        if asked.native is None:
            return out | {"own_scheduler": OwnScheduler(asked)}
        if asked.native == "pbt":
            asked.mutations.seed(self._seed())
            out["explore_fn"] = asked.mutations
        return out | {"scheduler": asked.native, "scheduler_options": asked.options() or None}

    # --- its events -------------------------------------------------------------------------------

    def to_end(self) -> ExperimentAnalysis:
        analysis = ExperimentAnalysis(default_metric=self.metric, default_mode=self.mode,
                                      _tune=self.tune)
        table = Table(self.tune, _OURS.get(self.metric, self.metric), self.mode or "min",
                      self.asked["verbose"])
        self.callbacks.call("setup", directory=self.tune.dir(), metric=self.metric, mode=self.mode)
        try:
            while (event := self.tune.next()) is not None:
                self._take(analysis, *event)
                table.look()
        except KeyboardInterrupt:
            self._interrupted()
            self.tune.close()
            raise
        except BaseException:
            self.tune.close()
            raise
        table.end()
        self.callbacks.call("on_experiment_end", _callback.Trials(analysis))
        self._judge(analysis)
        return analysis

    def _interrupted(self) -> None:
        self.tune.stop(True)
        while self.tune.next() is not None:
            pass
        print(f"manta: stopped; tune.run(…, resume=True) or `manta tune resume "
              f"{Path(self.tune.dir()).name}` goes on", file=sys.stderr)

    def _take(self, analysis: ExperimentAnalysis, kind: int, trial: int, source: int, row: Any,
              message: str | None) -> None:
        if message and kind in (FAILED, NOTE):
            where = "" if trial < 0 else f"trial {trial}: "
            print(f"manta: {where}{message}", file=sys.stderr)
        if not self.callbacks or trial < 0:
            return
        one, trials = Trial(self.tune, trial), _callback.Trials(analysis)
        iteration = one._facts["iteration"]
        if kind == BEGAN:
            self.callbacks.call("on_trial_start", iteration, trials, one)
        elif kind == ROW:
            self.callbacks.call("on_trial_result", iteration, trials, one,
                                completed(row, one.trial_id, one.config))
        elif kind == ENDED:
            method = "on_trial_error" if one.status == "ERROR" else "on_trial_complete"
            self.callbacks.call(method, iteration, trials, one)

    def _judge(self, analysis: ExperimentAnalysis) -> None:
        if not self.tune.count(5):
            return
        failed = analysis.failed()
        listed = "".join(f"\n  {t}: {t.error_msg}" for t in failed[:10])
        more = f"\n  … and {len(failed) - 10} more" if len(failed) > 10 else ""
        text = f"{len(failed)} of {len(analysis)} trials failed:{listed}{more}"
        if self.asked["raise_on_failed_trial"]:
            raise TuneError(text)
        print(f"manta: {text}", file=sys.stderr)


def _results() -> str:
    return _manta.knob("MANTA_RESULTS") or "~/manta_results"


def _found(where: Path, name: str | None) -> str:
    """The newest experiment there, or the newest of that name: a directory, or what it begins
    with."""
    if name is not None and (Path(name).expanduser() / "experiment").is_dir():
        return _owned(Path(name).expanduser())
    found = [p.parent for p in where.expanduser().glob("*/experiment")
             if name is None or p.parent.name == name or _plain(p.parent.name) == name]
    if not found:
        raise FileNotFoundError(f"there is no experiment {name or ''} in {where}\nhint: tune.run("
                                f"…, name=…, local_dir=…) as it began")
    return _owned(max(found, key=lambda p: (p / "experiment").stat().st_mtime_ns))


def _owned(directory: Path) -> str:
    """Its checkpoints are unpickled by those who go on with it."""
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user: its checkpoints may run what "
                              f"that user has put into them")
    return str(directory)


def _plain(directory: str) -> str:
    """train_0003_2026-01-02_10-11-12: train"""
    return re.sub(r"_\d{4,}_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$", "", directory)


def _seconds(given: Any) -> float:
    if given is None:
        return 0.0
    return float(given.total_seconds() if hasattr(given, "total_seconds") else given)


def _at_least(stop: dict[str, Any]) -> Callable[[int, Any], int]:
    import time
    began: dict[int, float] = {}

    def asked(trial: int, row: Any) -> int:
        first = began.setdefault(trial, time.monotonic())
        whole = {**completed(row, f"{trial:05}", None), "time_total_s": time.monotonic() - first}
        return int(any(k in whole and whole[k] >= v for k, v in stop.items()))
    return asked


def _asks(stop: Any) -> Callable[[int, Any], int]:
    def asked(trial: int, row: Any) -> int:
        trial_id = f"{trial:05}"
        if stop(trial_id, completed(row, trial_id, None)):
            return 1
        return 2 if getattr(stop, "stop_all", bool)() else 0
    return asked

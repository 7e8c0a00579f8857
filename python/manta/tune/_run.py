# SPDX-License-Identifier: Apache-2.0
"""tune.run: an experiment from its beginning to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manta import _manta, _names
from manta._runtime import frames as _frames
from manta.tune import _callback as _callback
from manta.tune import _experiment as _experiment
from manta.tune import _reporter as _reporter
from manta.tune import _space as _space
from manta.tune import _trainable as _trainable
from manta.tune._adapt import Allocator, OwnSearcher, grids, own_scheduler, varied
from manta.tune._analysis import (ExperimentAnalysis, Trial, TuneError, completed, flat, reported)
from manta.tune.schedulers import (FIFOScheduler, ResourceChangingScheduler, TrialScheduler,
                                   create_scheduler)
from manta.tune.search import BasicVariantGenerator, Searcher, create_searcher
from manta.tune._callback import FAILED, NOTE
from manta.tune._place import ORIGINAL, directory, found, results
from manta.tune._keeping import keeping
from manta.tune._naming import namer
from manta.tune._table import Table
from manta.tune._view import Progress
from manta.tune.stopper import Stopper, stopper_of

_LOOK_S = 0.1  # how often a terminal is drawn anew, at most
_OURS = {"training_iteration": "_training_iteration"}  # Ray's names of what every row has


def _ours(name: Any) -> Any:
    return _OURS.get(name, name)


@_frames.folded
def run(run_or_experiment: Any, config: dict[str, Any] | None = None, num_samples: int = 1, *,
        name: str | None = None, metric: str | None = None, mode: str | None = None,
        stop: Any = None, time_budget_s: Any = None, resources_per_trial: Any = None,
        local_dir: str | os.PathLike[str] | None = None,
        storage_path: str | os.PathLike[str] | None = None, search_alg: Any = None,
        scheduler: Any = None, keep_checkpoints_num: int | None = None,
        checkpoint_score_attr: str | None = None, checkpoint_freq: int = 0,
        checkpoint_at_end: bool = False, verbose: int = 1, max_failures: int = 0,
        fail_fast: bool = False, restore: str | None = None, resume: Any = False,
        reuse_actors: bool = False, raise_on_failed_trial: bool = True, callbacks: Any = None,
        max_concurrent_trials: int | None = None, seed: int | None = None,
        progress_reporter: Any = None, trial_name_creator: Any = None,
        trial_dirname_creator: Any = None, checkpoint_config: Any = None,
        export_formats: Any = None, log_to_file: Any = False,
        chdir_to_trial_dir: bool | None = None, sync_config: Any = None,
        **others: Any) -> ExperimentAnalysis:
    """Runs a function, a class or a trainable with many configs, and says how they did.

    config: a dict with domains in it (tune.uniform(…), tune.choice(…), tune.grid_search(…)).
    num_samples: how often it is drawn, and every grid gone through; -1: until time_budget_s.
    metric, mode: what trials report, and whether "min" or "max" of it is best. stop: {"loss": …,
    "training_iteration": 10}: a trial ends when it has reported at least so much; or a Stopper
    (manta.tune.stopper), or a function of (trial_id, result). resources_per_trial: {"cpu": 1,
    "gpu": 0.5}. search_alg chooses configs, scheduler which trials go on. max_failures: how often a
    trial is tried again from its newest checkpoint. resume: True: go on with the experiment `name`,
    or the newest one; its trials that ended do not run again. seed: the same one gives the same
    configs. progress_reporter: a CLIReporter(…) in the place of the live table. log_to_file: what a
    trial prints goes to the files stdout and stderr in its directory. keep_checkpoints_num: how
    many checkpoints of a trial stay on disk (None: the newest and the best by the metric); with
    checkpoint_score_attr ("accuracy", "min-loss") those with the best score, and the newest.
    chdir_to_trial_dir: a trial's working directory is its own, and not the driver's; None: for
    programs that import ray. restore: a checkpoint that the trials of a class begin from."""
    asked = {k: v for k, v in locals().items() if k != "others"}
    if isinstance(run_or_experiment, _experiment.Experiment):
        own = run_or_experiment.options
        asked |= {k: v for k, v in own.items() if k in asked}
        others = {**others, **{k: v for k, v in own.items() if k not in asked}}
    record = others.pop("_record", None)
    _ignore(others, [*asked])
    running = Running(_settled(asked))
    if record is not None:
        record(Path(running.tune.dir()))
    return running.to_end()


def _settled(asked: dict[str, Any]) -> dict[str, Any]:
    """With what checkpoint_config says, and a trainable that was registered by a name."""
    kept = asked.pop("checkpoint_config")
    if kept is not None:
        asked |= {"checkpoint_freq": kept.checkpoint_frequency or 0,
                  "checkpoint_at_end": bool(kept.checkpoint_at_end)}
    asked["kept"] = keeping(asked["keep_checkpoints_num"], asked["checkpoint_score_attr"], kept)
    asked["run_or_experiment"] = _experiment.registered(asked["run_or_experiment"])
    return asked


_SYNCED = "an experiment is written where storage_path or local_dir says, and copied nowhere"
_SERVED = "`manta tune status` and `manta dashboard` show an experiment that runs"

# Arguments of Ray's tune.run that change nothing, and what is there instead.
_IGNORED = {
    "checkpoint_keep_all_freq": "keep_checkpoints_num and checkpoint_score_attr say what is kept",
    "server_port": _SERVED, "with_server": _SERVED,
    "queue_trials": "trials wait for resources by themselves",
    "trial_executor": "trials are processes of this host, or of hosts=",
    "remote": "the experiment is run by this process",
    "_remote": "the experiment is run by this process",
    "experiment_name": "name= is its name",
    "global_checkpoint_period": "every event is in the log before anybody acts upon it",
    "ray_auto_init": "there is nothing to start",
    "run_errored_only": 'resume="ERRORED_ONLY" runs failed trials again',
    "sync_to_cloud": _SYNCED, "upload_dir": _SYNCED, "sync_to_driver": _SYNCED,
    "sync_client": _SYNCED, "sync_function": _SYNCED,
    "loggers": "callbacks=[…] write files of every trial: manta.tune.logger has them",
    "storage_filesystem": _SYNCED, "_entrypoint": "there is one",
    "resume_config": 'resume="ERRORED_ONLY" runs failed trials again, resume=True the others',
    "_experiment_checkpoint_dir": "name= and local_dir= say where it is"}


def _ignore(others: dict[str, Any], known: list[str]) -> None:
    unknown = sorted(set(others) - set(_IGNORED))
    if unknown:
        raise TypeError(_names.unknown("tune.run", unknown[0], known))
    for name in sorted(k for k, v in others.items() if v not in (None, False)):
        _warn(f"tune.run ignores {name}: {_IGNORED[name]}")


def _warn(text: str) -> None:
    import warnings
    warnings.warn(text, stacklevel=6)


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


def _check(asked: dict[str, Any]) -> None:
    config, samples, stop = asked["config"], asked["num_samples"], asked["stop"]
    if config is not None and not isinstance(config, dict):
        raise TypeError(f"config must be a dict, not {config!r}\nhint: tune.run(train, {{'lr': "
                        f"tune.loguniform(1e-4, 1e-1)}}, …)")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples == 0 or samples < -1:
        raise ValueError(f"num_samples must be at least 1, or -1: until time_budget_s, not "
                         f"{samples!r}")
    for name, limit in stop.items() if isinstance(stop, dict) else ():
        if not isinstance(limit, (int, float)):
            raise TypeError(f"stop: {name} must be a number, not {limit!r}")


def _formats(given: Any) -> tuple[str, ...]:
    formats = tuple(given or ())
    known = {v for k, v in vars(_experiment.ExportFormat).items() if k.isupper()}
    if isinstance(given, str) or not all(f in known for f in formats):
        raise ValueError(f"export_formats must be a list of {', '.join(sorted(known))}, not "
                         f"{given!r}")
    return formats


class Running:
    """One experiment: what was asked for as libmanta takes it, and its events."""

    def __init__(self, asked: dict[str, Any]):
        self.asked = asked
        _check(asked)
        self.reporter = _reporter.checked(asked["progress_reporter"])
        self.stopper = stopper_of(asked["stop"])
        self.scheduler: Any = _choice("scheduler", asked["scheduler"], TrialScheduler,
                                      create_scheduler, FIFOScheduler)
        self.own = own_scheduler(getattr(self.scheduler, "base", self.scheduler), self)
        self.search: Any = _choice("search_alg", asked["search_alg"], Searcher, create_searcher,
                                   BasicVariantGenerator)
        self.metric, self.mode = self._objective()
        self.config = self.scheduler.complete(asked["config"] or {})
        callbacks = _callback.checked(asked["callbacks"])
        self.callbacks = _callback.Caller(_callback.called(callbacks))
        self.sinks = _callback.sinks_of(callbacks)
        self.given = _trainable.given(
            asked["run_or_experiment"], asked["resources_per_trial"],
            _trainable.Saving(self._save_every(), asked["checkpoint_at_end"],
                              _formats(asked["export_formats"])),
            _trainable.Way(_trainable.files_of(asked["log_to_file"]), asked["reuse_actors"],
                           isinstance(self.scheduler, ResourceChangingScheduler),
                           _trainable.moves(asked["chdir_to_trial_dir"]),
                           restores=_trainable.begins_from(
                               asked["restore"], asked["run_or_experiment"], asked["resume"])))
        os.environ[ORIGINAL] = os.getcwd()
        elsewhere = self.given.trainer.get("hosts") or _manta.knob("MANTA_HOSTS")
        _trainable.check_config(asked["run_or_experiment"], self.config)
        payload, self._shared = self.given.job.pack_trials(self.given.name, here=not elsewhere)
        try:
            self.tune = _manta.tune_start(payload, **self._options())
        except TypeError as e:
            raise (_unsendable(self.config) or e) from None

    def _objective(self) -> tuple[str | None, str | None]:
        """metric and mode; of a searcher with several metrics the first."""
        metric = self.asked["metric"] or self.scheduler.metric or self.search.metric
        mode = self.asked["mode"] or self.scheduler.mode or self.search.mode
        if isinstance(metric, (list, tuple)):
            metric, mode = metric[0], mode[0] if isinstance(mode, (list, tuple)) else mode
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}')
        if metric is not None and mode is None:
            raise ValueError('metric without mode\nhint: mode="min" or mode="max"')
        return metric, mode

    def _save_every(self) -> int:
        """A class in steps saves for a scheduler that goes back to what was saved."""
        every: int = self.asked["checkpoint_freq"]
        plain = ("fifo", "asha", "median")
        return every or int(self.scheduler.native not in plain or self.own is not None
                            or self.asked["max_failures"] != 0
                            or isinstance(self.scheduler, ResourceChangingScheduler))

    # --- for libmanta -----------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        a = self.asked
        options: dict[str, Any] = {
            "trainer": self.given.trainer, "samples": a["num_samples"],
            "metric": _ours(self.metric), "maximize": self.mode == "max",
            "concurrency": a["max_concurrent_trials"] or self._limit(), "reuse": a["reuse_actors"],
            "max_failures": a["max_failures"], "fail_fast": bool(a["fail_fast"]),
            "time_budget": _seconds(a["time_budget_s"]),
            "name": a["name"] or _trainable.plain_name(self.given.name),
            "logdir": self._directory(), "resume": self._resumed(),
            "retry_failed": "ERRORED" in str(a["resume"]), "sinks": self.sinks,
            # A class in steps that does something at its end gets to it.
            "soft_stop": isinstance(a["run_or_experiment"], type) and bool(
                a["checkpoint_at_end"] or a["export_formats"])}
        options |= a["kept"]
        options["dir_fn"] = namer(a["trial_dirname_creator"], self.given.name)
        options["output_fn"] = self._print if a["verbose"] else None
        return options | self._stop() | self._search() | self._schedule()

    def _limit(self) -> int:
        limit: int = getattr(self.search, "max_concurrent", 0)
        return limit if isinstance(self.search, BasicVariantGenerator) else 0

    def _directory(self) -> str | None:
        a = self.asked
        return directory(a["storage_path"], a["local_dir"], a["sync_config"])

    def _resumed(self) -> str | None:
        resume = self.asked["resume"]
        if not resume:
            return None
        given = self.asked["restore"] or self.asked["name"]
        try:
            return found(Path(self._directory() or results()),
                         given or _trainable.plain_name(self.given.name))
        except FileNotFoundError:
            if str(resume).startswith("AUTO"):
                return None
            raise

    def _stop(self) -> dict[str, Any]:
        stop = self.asked["stop"]
        if stop is None:
            return {}
        if self.stopper is not None:
            return {"stop_fn": _asks(self.stopper)}
        found: dict[str, Any] = {"stop": {_OURS.get(k, k): v for k, v in stop.items()}}
        if "time_total_s" in stop:  # one that hangs reports nothing that could be asked about
            found["trial_time"] = stop["time_total_s"]
        return found

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
        config, seed = dict(self.config), self._seed()
        native = getattr(self.search, "native", "")
        spec = _space.spec_of(config, calls)
        if native and not calls and not getattr(self.search, "points", None):
            space = getattr(self.search, "space", None)
            if space is not None and config:
                raise ValueError("two spaces: config of tune.run, and that of search_alg")
            return {"space": _space.spec_of(dict(space), calls) if space is not None else spec,
                    "searcher": native, "searcher_options": self.search.options() or None,
                    "seed": seed}
        whole = self.asked["metric"] or self.metric, self.asked["mode"] or self.mode
        if not self.search.set_search_properties(*whole, config, seed=seed) and varied(config):
            raise ValueError("two spaces: config of tune.run, and that of search_alg")
        own = OwnSearcher(self.search, self.asked["num_samples"], config)
        return {"own_searcher": own, "seed": seed, "samples": own.samples}

    def _schedule(self) -> dict[str, Any]:
        asked = self.scheduler
        out: dict[str, Any] = {"time_key": _OURS.get(asked.time_attr, asked.time_attr)}
        if isinstance(asked, ResourceChangingScheduler):
            out["resources_fn"] = Allocator(self, asked)
            asked = asked.base
        if self.own is not None:
            return out | {"own_scheduler": self.own}
        if asked.native == "pbt":
            asked.mutations.seed(self._seed())
            out["explore_fn"] = asked.mutations
        return out | {"scheduler": asked.native, "scheduler_options": asked.options() or None}

    # --- its events -------------------------------------------------------------------------------

    def to_end(self) -> ExperimentAnalysis:
        analysis = ExperimentAnalysis(default_metric=self.metric, default_mode=self.mode,
                                      _tune=self.tune, _creator=self.asked["trial_name_creator"])
        progress, table = self._shown(analysis)
        self._table = table
        self.callbacks.call("setup", stop=self.asked["stop"],
                            num_samples=self.asked["num_samples"],
                            total_num_samples=self.asked["num_samples"],
                            directory=self.tune.dir(), metric=self.metric, mode=self.mode)
        try:
            while (event := self._next(table)) is not None:
                if event:
                    progress.take(event[0], event[1])
                    self._take(analysis, *event)
                table.look()
        except KeyboardInterrupt:
            self._interrupted()
            self.tune.close()
            raise
        except BaseException:
            self.tune.close()
            raise
        progress.end()
        table.end()
        self._advise()
        self.callbacks.call("on_experiment_end", _callback.Trials(analysis))
        self._judge(analysis)
        return analysis

    def _next(self, table: Any) -> Any:
        """The next event. Where nobody follows them, only one that has something to say, or () now
        and then: a call per row would take longer than a trial that does little."""
        followed = self.callbacks or table.follows
        return self.tune.next() if followed else self.tune.pass_events(_LOOK_S)

    def _print(self, trial: int, rank: int, text: str) -> None:
        """What a trial prints."""
        who = f"(trial_{trial:05})" if rank == 0 else f"(trial_{trial:05}, rank {rank})"
        lines = text.removesuffix("\n").split("\n")
        self._table.say("\n".join(f"{who} {line}" for line in lines))

    def _shown(self, analysis: ExperimentAnalysis) -> tuple[Progress, Any]:
        creator = self.asked["trial_name_creator"]
        progress = Progress(self.tune, _ours(self.metric), self.mode or "min",
                            varied(self.config), creator or str,
                            max(0, self.asked["num_samples"]) * grids(self.config))
        if self.reporter is None:
            return progress, Table(progress, self.asked["verbose"])
        return progress, _reporter.Shown(
            self.reporter, progress, _callback.Trials(analysis), metric=self.metric,
            mode=self.mode, total_samples=self.asked["num_samples"])

    def _interrupted(self) -> None:
        self.tune.stop(True)
        while self.tune.next() is not None:
            pass
        _note(f"stopped; tune.run(…, resume=True) or `manta tune resume "
              f"{Path(self.tune.dir()).name}` goes on")

    def _take(self, analysis: ExperimentAnalysis, kind: int, trial: int, source: int, row: Any,
              message: str | None) -> None:
        if message and kind in (FAILED, NOTE):
            where = "" if trial < 0 else f"trial {trial}: "
            _note(f"{where}{message}")
        if not self.callbacks or trial < 0:
            return
        one = analysis._trial(trial)
        result = {"time_total_s": one.time_total_s, **completed(row, one.trial_id, one.config)}
        self.callbacks.tell(kind, _callback.Trials(analysis), one, result)

    def _advise(self) -> None:
        """What can be known of a finished experiment that did not do what it was asked to."""
        count = self.tune.count()
        last = flat(Trial(self.tune, 0).last_result) if count else {}
        stop = self.asked["stop"] if isinstance(self.asked["stop"], dict) else {}
        for name in (k for k in stop if last and k not in last and f"_{k}" not in last):
            known = ", ".join(reported(last))
            _note(f"stop: trial 0 reports no {name!r}, which ends no trial; it reports {known}")
        if self.scheduler.native in ("pbt", "pb2") and count > 1 and not any(
                self.tune.checkpoint_dir(i) for i in range(min(count, 99))):
            _note(f"no trial has saved a checkpoint, so {type(self.scheduler).__name__} could copy "
                  f"none: call tune.save_checkpoint(…) after tune.report(…)")

    def _judge(self, analysis: ExperimentAnalysis) -> None:
        if not self.tune.count(5):
            return
        text = _failures(analysis.failed(), len(analysis))
        if self.asked["raise_on_failed_trial"]:
            raise TuneError(text)
        _note(text)


def _note(text: str) -> None:
    print(f"manta: {text}", file=sys.stderr)


def _unsendable(config: dict[str, Any]) -> TypeError | None:
    """What is said of an entry of the config that cannot be pickled; None: all can."""
    import cloudpickle
    for key, value in config.items():
        try:
            cloudpickle.dumps(value)
        except Exception as e:
            return TypeError(f"config: {key!r} cannot be sent to a trial: {e}\nhint: make it "
                             f"inside of the function, or pass what it is made of")
    return None


def _failures(failed: list[Trial], of: int) -> str:
    """Which trials failed, together where they say the same, and where to read more."""
    by: dict[str, list[Trial]] = {}
    for t in failed:
        by.setdefault(str(t.error_msg).replace("\n", "\n    "), []).append(t)
    kinds = list(by.items())
    listed = "".join(f"\n  {_names_of(trials)}: {said}" for said, trials in kinds[:10])
    more = f"\n  … and {len(kinds) - 10} other errors" if len(kinds) > 10 else ""
    file = next((f for t in failed if (f := t.error_file)), None)
    hint = f"\nhint: {file} has the traceback" if file else ""
    trials = "trial" if of == 1 else "trials"
    return f"{len(failed)} of {of} {trials} failed:{listed}{more}{hint}"


def _names_of(trials: list[Trial]) -> str:
    named = ", ".join(str(t) for t in trials[:3])
    return named if len(trials) <= 3 else f"{named} and {len(trials) - 3} more"


def _seconds(given: Any) -> float:
    if given is None:
        return 0.0
    return float(given.total_seconds() if hasattr(given, "total_seconds") else given)


def _asks(stop: Stopper) -> Callable[[int, Any], int]:
    def asked(trial: int, row: Any) -> int:
        trial_id = f"{trial:05}"
        ends = bool(stop(trial_id, completed(row, trial_id, None)))
        return 2 if stop.stop_all() else int(ends)
    return asked

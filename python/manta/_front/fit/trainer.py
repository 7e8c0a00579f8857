# SPDX-License-Identifier: Apache-2.0
"""The trainers of generation 3: a train function, its configs, fit()."""

from __future__ import annotations

import os
import secrets
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Self

from manta import _frameworks, _manta
from manta._frameworks.base import BackendConfig
from manta._front import callbacks as _callbacks
from manta._front import request as _request
from manta._front import storage as _storage
from manta._front.fit import configs, context, record
from manta._front.fit import result as _result
from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.configs import DataConfig, RunConfig, ScalingConfig
from manta._front.fit.failure import as_failure
from manta._front.fit.one_trial import AsOneTrial
from manta._front.fit.result import History, Result
from manta._front.sinks import is_called_of_trials
from manta._front.run import Reports, Run
from manta._front.trainer import Trainer
from manta._front.tuned import TunedRun
from manta._names import arguments
from manta._runtime import frames as _frames

_STORE_S = 120.0  # a run that is ended by `stop` waits so long for its last checkpoint


class Loop:
    """The train function as workers call it: between telling them where they are, and forgetting
    it."""

    def __init__(self, function: Callable[..., Any], facts: context.Facts):
        self.function, self.facts = function, facts
        self.__qualname__ = _request.name_of(function)

    def __call__(self, config: Any) -> None:
        context.enter(self.facts)
        try:
            args, kwargs = _request.arguments_of(self.function, config)
            self.function(*args, **kwargs)
        finally:
            context.leave()


class Over:
    """A train function whose config is laid over another one."""

    def __init__(self, function: Callable[..., Any], base: Any):
        self.function, self.base = function, base
        self.__qualname__ = _request.name_of(function)

    def __call__(self, config: Any) -> Any:
        return self.function({**self.base, **config} if isinstance(self.base, dict) else config)


class DataParallelTrainer:
    """Runs a train function on all workers: DataParallelTrainer(train).fit(). A subclass for a
    framework names it, and may take its config by another name."""

    _framework = "none"  # of manta._frameworks: what backend_config=None stands for

    @arguments
    def __init__(self, train_loop_per_worker: Callable[..., Any], *,
                 train_loop_config: Any = None, backend_config: BackendConfig | None = None,
                 scaling_config: ScalingConfig | None = None, run_config: RunConfig | None = None,
                 datasets: dict[str, Any] | None = None, dataset_config: Any = None,
                 data_config: Any = None, resume_from_checkpoint: Checkpoint | None = None,
                 preprocessor: Any = None, metadata: dict[str, Any] | None = None):
        config = {} if train_loop_config is None else train_loop_config
        _request.arguments_of(train_loop_per_worker, config)  # now, not in a worker
        given = data_config if data_config is not None else dataset_config
        self.dataset_config = configs.checked("dataset_config", given, DataConfig)
        self.datasets = self._checked_datasets(datasets, self.dataset_config)
        if resume_from_checkpoint is not None and not isinstance(resume_from_checkpoint,
                                                                 Checkpoint):
            raise TypeError(f"resume_from_checkpoint must be a Checkpoint, not "
                            f"{resume_from_checkpoint!r}\nhint: Checkpoint(path), or "
                            f"Checkpoint.from_dict(…)")
        self.train_loop_per_worker, self.train_loop_config = train_loop_per_worker, config
        self.backend_config = self._checked_backend(backend_config)
        self.scaling_config = configs.checked("scaling_config", scaling_config, ScalingConfig)
        self.run_config = configs.checked("run_config", run_config, RunConfig)
        self.starting_checkpoint = resume_from_checkpoint
        self.preprocessor, self.metadata = preprocessor, metadata

    @staticmethod
    def _checked_datasets(given: Any, config: DataConfig) -> dict[str, Any] | None:
        if not given:
            return None
        if not isinstance(given, dict):
            raise TypeError(f"datasets must be a dict, {{\"train\": dataset}}, not {given!r}")
        if config.datasets_to_split != "all":
            for name in config.datasets_to_split:
                if name not in given:
                    raise ValueError(f"datasets_to_split: there is no data set {name!r}\nhint: "
                                     f"datasets has {', '.join(map(repr, given))}")
        from manta._front import datasets
        found = {name: datasets.checked(d() if callable(d) else d, f"datasets[{name!r}]")
                 for name, d in given.items()}
        return {name: d if config.splits(name) or isinstance(d, datasets.Whole)
                else datasets.Whole(d) for name, d in found.items()}

    def _checked_backend(self, given: Any) -> BackendConfig:
        usual = _frameworks.get(self._framework).config()
        if given is None:
            return usual
        wanted = BackendConfig if self._framework == "none" else type(usual)
        if not isinstance(given, wanted):
            raise TypeError(f"the backend's config must be a {wanted.__name__}, not {given!r}\n"
                            f"hint: {wanted.__name__}(…)")
        return given

    # --- a run that broke off ---------------------------------------------------------------------

    _restored: Path | None = None  # the directory of an experiment that goes on
    _uri: str | None = None  # where that one is stored
    _resumed: Path | None = None  # and that of its last run

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether restore(path) finds an experiment there."""
        uri = _storage.stored_at("path", path)
        return (record.exists(_storage.path_at("path", path)) if uri is None
                else _manta.storage_has(uri, record.RECORD))

    @classmethod
    def restore(cls, path: str | os.PathLike[str], train_loop_per_worker: Any = None,
                train_loop_config: Any = None, *, scaling_config: ScalingConfig | None = None,
                datasets: dict[str, Any] | None = None, preprocessor: Any = None,
                metadata: dict[str, Any] | None = None, trust: bool = False) -> Self:
        """A trainer whose fit() goes on with the experiment in that directory, storage_path/name,
        from its newest checkpoint; if it was finished, fit() gives its result again. The arguments
        are those of then; what is given here counts more. A path s3://… is downloaded; trust: what
        others could have written there is believed."""
        experiment = _storage.fetched("path", path)
        _storage.check_trust(experiment, trust)
        given = {"train_loop_per_worker": train_loop_per_worker,
                 "train_loop_config": train_loop_config, "scaling_config": scaling_config,
                 "datasets": datasets, "preprocessor": preprocessor, "metadata": metadata}
        found = record.read(experiment, {k: v for k, v in given.items() if v is not None}, trust)
        if "train_loop_per_worker" not in found:
            raise ValueError("the train function could not be kept\n"
                             "hint: restore(path, train_loop_per_worker=…)")
        backend = found.pop("backend_config", None)
        trainer = cls(**found)
        trainer.backend_config = trainer._checked_backend(backend)
        trainer._restored, trainer._resumed = experiment, record.newest_run(experiment)
        trainer._uri = _storage.stored_at("path", path)
        return trainer

    def _arguments(self) -> dict[str, Any]:
        return {"train_loop_per_worker": self.train_loop_per_worker,
                "train_loop_config": self.train_loop_config, "backend_config": self.backend_config,
                "scaling_config": self.scaling_config, "run_config": self.run_config,
                "datasets": self.datasets, "dataset_config": self.dataset_config,
                "resume_from_checkpoint": self.starting_checkpoint,
                "preprocessor": self.preprocessor, "metadata": self.metadata}

    # --- running ----------------------------------------------------------------------------------

    @_frames.folded
    def fit(self) -> Result:
        """Runs it to its end. What the train function raises beyond max_failures comes out as its
        own type, which is a TrainingFailedError as well."""
        experiment, uri = self._experiment()
        if self._resumed is not None and self._is_over(self._resumed):
            return _result.read(self._resumed, self._kept(), self.train_loop_config)
        record.write(experiment, self._arguments(), uri)
        history = History(f"{secrets.token_hex(3)[:5]}_00000")
        trainer = self._trainer(experiment if uri is None else uri, history)
        trainer._resume = None if self._resumed is None else str(self._resumed)
        try:
            run = trainer._begin(self._request(experiment.name, history.trial_id))
            try:
                error = self._to_end(run)
            finally:
                run.close()
                trainer._running = False
            if error is not None:
                raise error
            return self._result(trainer, history)
        finally:
            trainer.shutdown()

    def _experiment(self) -> tuple[Path, str | None]:
        """Its directory, storage_path/name, and its URI if it is stored elsewhere."""
        if self._restored is not None:
            return self._restored, self._uri
        uri = self.run_config.uri()
        name = self.run_config.name or time.strftime(f"{type(self).__name__}_%Y-%m-%d_%H-%M-%S")
        return self.run_config.directory() / name, None if uri is None else f"{uri}/{name}"

    def _trainer(self, experiment: Path | str, history: History) -> Trainer:
        scaling, run, failure = self.scaling_config, self.run_config, self._failures()
        return Trainer(self.backend_config, scaling.num_workers, scaling.use_gpu,
                       scaling.resources_per_worker,
                       callbacks=[history, *self._told(history), *self._progress()],
                       logdir=experiment, name=type(self).__name__, max_retries=failure,
                       retry_exceptions=failure != 0, quiet=run.verbose == 0)

    def _told(self, history: History) -> list[Any]:
        given = _callbacks.checked(self.run_config.callbacks, of_trials=True)
        return [AsOneTrial(c, history, type(self).__name__)
                if _callbacks.is_of_trials(c) or is_called_of_trials(c) else c for c in given]

    def _progress(self) -> list[_callbacks.ProgressCallback]:
        verbose = self.run_config.verbose
        return [] if not verbose else [_callbacks.ProgressCallback(max(1, min(int(verbose), 2)))]

    def as_tuned(self) -> TunedRun:
        """For a Tuner: each trial is a run of the train function with its workers. The config of a
        trial is laid over train_loop_config."""
        scaling = self.scaling_config
        facts = context.Facts("", "", type(self).__name__, scaling.total_resources, None,
                              self._kept().checkpoint_frequency or 0, self.preprocessor,
                              self.metadata)
        trainer = Trainer(self.backend_config, scaling.num_workers, scaling.use_gpu,
                          scaling.resources_per_worker, name=type(self).__name__)
        given = self.train_loop_config
        trainer.shutdown()
        return TunedRun(Over(Loop(self.train_loop_per_worker, facts), given), trainer._setting,
                        trainer._native, self.datasets)

    def _failures(self) -> int:
        failure = self.run_config.failure_config
        assert failure is not None
        return failure.max_failures

    def _request(self, experiment: str, trial_id: str) -> _request.RunRequest:
        kept = self._kept()
        facts = context.Facts(experiment, trial_id, f"{type(self).__name__}_{trial_id}",
                              self.scaling_config.total_resources, self.run_config.stop,
                              kept.checkpoint_frequency or 0, self.preprocessor, self.metadata)
        start: Any = self.starting_checkpoint
        trust = start is not None and start._is_trusted()
        if start is not None and start._is_manta():
            from manta import _state
            if trust or not _state.is_pickled(start.path):
                start = start.path  # libmanta brings it to the workers
            else:  # plain values can be read all the same, and others are refused here
                start = Checkpoint.from_dict(start.to_dict())
        return _request.RunRequest(Loop(self.train_loop_per_worker, facts), self.train_loop_config,
                                   None, self.datasets, start, kept.strategy(), None, trust)

    def _kept(self) -> configs.CheckpointConfig:
        config = self.run_config.checkpoint_config
        assert config is not None
        if config.checkpoint_at_end:
            raise ValueError("checkpoint_at_end: only the train function knows its state\n"
                             "hint: report(metrics, checkpoint=…) with the last report")
        return config

    def _to_end(self, run: Run) -> Exception | None:
        """What the run failed with."""
        try:
            while (reports := run.next()) is not None:
                if self._is_last(run, reports):
                    run.finish(error=False)
                    break
        except Exception as e:
            return as_failure(e)
        return None

    def _is_over(self, run: Path) -> bool:
        """Whether `stop` has ended it; to libmanta it is one that broke off."""
        rows = _result.rows_of(run) if self.run_config.stop is not None else []
        return bool(rows) and rows[-1].get(context.DONE) is True

    def _is_last(self, run: Run, reports: Reports) -> bool:
        """Whether `stop` was reached; the checkpoint of that report is on disk then."""
        row = list.__getitem__(reports, 0) if reports else None
        if self.run_config.stop is None or not row or row.get(context.DONE) is not True:
            return False
        by = time.monotonic() + _STORE_S
        while row.get(context.SHOULD_CHECKPOINT) and _result.newest_iteration(
                Path(run.directory)) < row["_training_iteration"]:
            run.linger(0.01)
            if time.monotonic() > by:
                warnings.warn(f"the last checkpoint was not written within {_STORE_S:g} s")
                break
        return True

    def _result(self, trainer: Trainer, history: History) -> Result:
        directory = trainer.latest_run_dir
        assert directory is not None
        found = _result.kept(directory, history.rows, self._kept())
        newest = _result.newest(directory, trainer._trainer.checkpoint())
        return Result(history.rows[-1] if history.rows else {}, newest, None, str(directory),
                      found, self.train_loop_config, history.rows)

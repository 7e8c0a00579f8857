# SPDX-License-Identifier: Apache-2.0
"""Tuner: an experiment as an object, in the words of generation 3."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manta._front.fit import configs
from manta._front.fit.configs import RunConfig, check_filesystem
from manta._names import arguments, public
from manta._runtime import frames as _frames
from manta.tune._analysis import ExperimentAnalysis, ResultGrid
from manta.tune._place import located
from manta.tune._run import run


@public
@dataclass
class TuneConfig:
    """What tune.run takes by the same names."""
    metric: str | None = None
    mode: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool = False
    seed: int | None = None
    trial_name_creator: Any = None
    trial_dirname_creator: Any = None
    chdir_to_trial_dir: bool | None = None

    def __post_init__(self) -> None:
        modes = self.mode if isinstance(self.mode, (list, tuple)) else [self.mode]
        if not all(m in (None, "min", "max") for m in modes):
            raise ValueError(f'mode must be "min" or "max", not {self.mode!r}')


def _of_loop(space: dict[str, Any]) -> dict[str, Any]:
    """Of the param_space of a trainer what its train function gets."""
    others = sorted(set(space) - {"train_loop_config"})
    if others:
        raise ValueError(f"param_space of a trainer has train_loop_config; manta does not tune "
                         f"{', '.join(others)}\nhint: param_space={{'train_loop_config': {{…}}}}; "
                         f"a function that makes the trainer may tune anything of it")
    loop: dict[str, Any] = space.get("train_loop_config", {})
    return loop


class Tuner:
    """Tuner(trainable, param_space={…}, tune_config=TuneConfig(metric=…, mode=…)).fit()

    trainable: as for tune.run, or a trainer such as TorchTrainer: param_space={"train_loop_config":
    {…}} is laid over its train_loop_config, and its scaling_config says what a trial gets."""

    _resumed: Path | None = None
    _retries = False
    _RECORD = "tuner.pkl"  # in the experiment's directory: the arguments, for restore()

    @arguments
    def __init__(self, trainable: Any = None, *, param_space: dict[str, Any] | None = None,
                 tune_config: TuneConfig | None = None, run_config: RunConfig | None = None):
        if trainable is None:
            raise TypeError("Tuner needs a trainable: a function, a class or a trainer")
        self.trainable, self.param_space = trainable, dict(param_space or {})
        self.tune_config = configs.checked("tune_config", tune_config, TuneConfig)
        own = getattr(trainable, "run_config", None)
        self.run_config = configs.checked("run_config", run_config or own, RunConfig)

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether there is an experiment in that directory, or one that was named as it is."""
        check_filesystem(storage_filesystem)
        return located(path) is not None

    @classmethod
    def restore(cls, path: str | os.PathLike[str], trainable: Any = None, *,
                resume_unfinished: bool = True, resume_errored: bool = False,
                restart_errored: bool = False, param_space: dict[str, Any] | None = None,
                tune_config: TuneConfig | None = None, storage_filesystem: Any = None,
                overwrite_trainable: Any = None) -> Tuner:
        """A Tuner whose fit() goes on with an experiment: what ended does not run again. trainable,
        param_space and tune_config must be those of then, and are if they are not given: they are
        in the directory, which must be your own."""
        check_filesystem(storage_filesystem)
        trainable = trainable if trainable is not None else overwrite_trainable
        where = located(path)
        if where is None:
            raise ValueError(f"there is no experiment {path}\nhint: ResultGrid.experiment_path, or "
                             f"the name of RunConfig in its storage_path")
        known = cls._recorded(where)
        given = {"trainable": trainable, "param_space": param_space, "tune_config": tune_config}
        tuner = cls(**known | {k: v for k, v in given.items() if v is not None})
        tuner._resumed, tuner._retries = where, resume_errored or restart_errored
        return tuner

    @classmethod
    def _recorded(cls, where: Path) -> dict[str, Any]:
        """Nothing if they could not be kept, or if somebody else has written them."""
        path = where / cls._RECORD
        if not path.is_file() or path.stat().st_uid != os.getuid():
            return {}
        found: dict[str, Any] = pickle.loads(path.read_bytes())
        return found

    def _keep(self) -> Callable[[Path], None] | None:
        """Writes the arguments into a directory. Now they are as they were given: searchers learn
        during the experiment."""
        import cloudpickle
        try:
            packed = cloudpickle.dumps({
                "trainable": self.trainable, "param_space": self.param_space,
                "tune_config": self.tune_config, "run_config": self.run_config})
        except Exception:  # restore() will have to be given them
            return None

        def write(where: Path) -> None:
            (where / self._RECORD).write_bytes(packed)
        return write if self._resumed is None else None

    @_frames.folded
    def fit(self) -> ResultGrid:
        """Runs all trials. Those that failed are among the results, with their error."""
        asked, given = self.tune_config, self.run_config
        trainable, space = self.trainable, self.param_space
        if hasattr(trainable, "as_tuned"):
            trainable, space = trainable.as_tuned(), _of_loop(space)
        failure, kept = given.failure_config, given.checkpoint_config
        analysis: ExperimentAnalysis = run(
            trainable, space, asked.num_samples, metric=asked.metric, mode=asked.mode,
            name=given.name if self._resumed is None else str(self._resumed),
            stop=given.stop, time_budget_s=asked.time_budget_s, search_alg=asked.search_alg,
            scheduler=asked.scheduler, verbose=1 if given.verbose is None else int(given.verbose),
            progress_reporter=given.progress_reporter, log_to_file=given.log_to_file,
            trial_name_creator=asked.trial_name_creator,
            trial_dirname_creator=asked.trial_dirname_creator,
            chdir_to_trial_dir=asked.chdir_to_trial_dir, sync_config=given.sync_config,
            storage_path=given.storage_path if self._resumed is None else None,
            max_failures=0 if failure is None else failure.max_failures,
            fail_fast=bool(failure and failure.fail_fast),
            checkpoint_config=kept,
            reuse_actors=asked.reuse_actors, raise_on_failed_trial=False,
            callbacks=given.callbacks, max_concurrent_trials=asked.max_concurrent_trials,
            _record=self._keep(), seed=asked.seed,
            resume=self._resumed is not None and ("ERRORED_ONLY" if self._retries else True))
        self._analysis = analysis
        return ResultGrid(analysis)

    def get_results(self) -> ResultGrid:
        """Those of fit(), or of the experiment that was restored."""
        if hasattr(self, "_analysis"):
            return ResultGrid(self._analysis)
        if self._resumed is None:
            raise RuntimeError("there are no results before fit()")
        return ResultGrid(ExperimentAnalysis(self._resumed))

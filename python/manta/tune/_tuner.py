# SPDX-License-Identifier: Apache-2.0
"""Tuner: an experiment as an object, in the words of generation 3."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manta._front.fit import configs
from manta._front.fit.configs import RunConfig
from manta._names import arguments, public
from manta._runtime import frames as _frames
from manta.tune._analysis import ExperimentAnalysis, ResultGrid
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

    def __post_init__(self) -> None:
        if self.mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {self.mode!r}')


class Tuner:
    """Tuner(trainable, param_space={…}, tune_config=TuneConfig(metric=…, mode=…)).fit()

    trainable: as for tune.run, or a trainer such as TorchTrainer: param_space={"train_loop_config":
    {…}} is laid over its train_loop_config, and its scaling_config says what a trial gets."""

    _resumed: Path | None = None
    _retries = False

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
    def can_restore(cls, path: str | os.PathLike[str]) -> bool:
        """Whether there is an experiment in that directory."""
        return Path(path, "experiment").is_dir()

    @classmethod
    def restore(cls, path: str | os.PathLike[str], trainable: Any = None, *,
                resume_unfinished: bool = True, resume_errored: bool = False,
                restart_errored: bool = False, param_space: dict[str, Any] | None = None,
                tune_config: TuneConfig | None = None) -> Tuner:
        """A Tuner whose fit() goes on with an experiment: what ended does not run again. trainable,
        param_space and tune_config must be those of then."""
        where = Path(path).expanduser().resolve()
        if not cls.can_restore(where):
            raise ValueError(f"{where} is not the directory of an experiment\nhint: "
                             f"ResultGrid.experiment_path")
        tuner = cls(trainable, param_space=param_space, tune_config=tune_config)
        tuner._resumed, tuner._retries = where, resume_errored or restart_errored
        return tuner

    @_frames.folded
    def fit(self) -> ResultGrid:
        """Runs all trials. Those that failed are among the results, with their error."""
        asked, given = self.tune_config, self.run_config
        trainable, space = self.trainable, self.param_space
        if hasattr(trainable, "as_tuned"):
            trainable, space = trainable.as_tuned(), space.get("train_loop_config", {})
        failure, kept = given.failure_config, given.checkpoint_config
        analysis: ExperimentAnalysis = run(
            trainable, space, asked.num_samples, metric=asked.metric, mode=asked.mode,
            name=given.name if self._resumed is None else str(self._resumed),
            stop=given.stop, time_budget_s=asked.time_budget_s, search_alg=asked.search_alg,
            scheduler=asked.scheduler, verbose=int(given.verbose or 0),
            storage_path=given.storage_path if self._resumed is None else None,
            max_failures=0 if failure is None else failure.max_failures,
            fail_fast=bool(failure and failure.fail_fast),
            keep_checkpoints_num=None if kept is None else kept.num_to_keep,
            checkpoint_freq=0 if kept is None else kept.checkpoint_frequency or 0,
            checkpoint_at_end=bool(kept and kept.checkpoint_at_end),
            reuse_actors=asked.reuse_actors, raise_on_failed_trial=False,
            callbacks=given.callbacks, max_concurrent_trials=asked.max_concurrent_trials,
            seed=asked.seed, resume=("ERRORED_ONLY" if self._retries else True)
            if self._resumed is not None else False)
        self._analysis = analysis
        return ResultGrid(analysis)

    def get_results(self) -> ResultGrid:
        """Those of fit(), or of the experiment that was restored."""
        if hasattr(self, "_analysis"):
            return ResultGrid(self._analysis)
        if self._resumed is None:
            raise RuntimeError("there are no results before fit()")
        return ResultGrid(ExperimentAnalysis(self._resumed))

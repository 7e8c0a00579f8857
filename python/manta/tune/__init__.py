# SPDX-License-Identifier: Apache-2.0
"""Tuning: a function, a class or a whole distributed run, with many configs.

    from manta import tune

    def train(config):
        for step in range(10):
            tune.report(loss=(config["x"] - 3) ** 2 / (step + 1))

    analysis = tune.run(train, config={"x": tune.uniform(0, 10)}, num_samples=50,
                        metric="loss", mode="min")
    print(analysis.best_config)
"""

from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.configs import CheckpointConfig, FailureConfig, RunConfig
from manta._front.fit.context import get_checkpoint
from manta._front.trainable import Trainable
from manta.tune import schedulers, search
from manta.tune._analysis import ExperimentAnalysis, ResultGrid, Trial, TuneError
from manta.tune._callback import Callback
from manta.tune._run import run
from manta.tune._session import (checkpoint_dir, get_trial_dir, get_trial_id, get_trial_name,
                                 load_checkpoint, report, save_checkpoint)
from manta.tune._space import (choice, grid_search, lograndint, loguniform, qlograndint,
                               qloguniform, qrandint, qrandn, quniform, randint, randn, sample_from,
                               uniform)
from manta.tune._trainable import with_parameters, with_resources
from manta.tune._tuner import TuneConfig, Tuner
from manta.tune.schedulers import create_scheduler
from manta.tune.search import create_searcher

__all__ = [
    "Callback", "Checkpoint", "CheckpointConfig", "ExperimentAnalysis", "FailureConfig",
    "ResultGrid", "RunConfig", "Trainable", "Trial", "TuneConfig", "TuneError", "Tuner",
    "checkpoint_dir", "choice", "create_scheduler", "create_searcher", "get_checkpoint",
    "get_trial_dir", "get_trial_id", "get_trial_name", "grid_search", "load_checkpoint",
    "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn", "quniform",
    "randint", "randn", "report", "run", "sample_from", "save_checkpoint", "schedulers",
    "search", "uniform", "with_parameters", "with_resources",
]

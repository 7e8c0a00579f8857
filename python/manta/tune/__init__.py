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

from typing import NoReturn

from manta._front import refuse as _refuse
from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.configs import CheckpointConfig, FailureConfig, RunConfig, SyncConfig
from manta._front.fit.context import TrainContext as TuneContext
from manta._front.fit.context import get_checkpoint, get_context
from manta._front.fit.result import Result
from manta._front.trainable import Trainable
from manta.tune import logger, schedulers, search, stopper
from manta.tune._analysis import ExperimentAnalysis, ResultGrid, Trial, TuneError
from manta.tune._callback import Callback
from manta.tune._experiment import (Experiment, ExportFormat, register_trainable,
                                    run_experiments)
from manta.tune._reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
from manta.tune._resources import PlacementGroupFactory
from manta.tune._run import run
from manta.tune._session import (checkpoint_dir, get_trial_dir, get_trial_id, get_trial_name,
                                 get_trial_resources, is_session_enabled, load_checkpoint, report,
                                 save_checkpoint)
from manta.tune._space import (choice, grid_search, lograndint, loguniform, qlograndint,
                               qloguniform, qrandint, qrandn, quniform, randint, randn, sample_from,
                               uniform)
from manta.tune._trainable import with_parameters, with_resources
from manta.tune._tuner import TuneConfig, Tuner
from manta.tune.schedulers import create_scheduler
from manta.tune.search import create_searcher
from manta.tune.stopper import Stopper

__all__ = [
    "CLIReporter", "Callback", "Checkpoint", "CheckpointConfig", "Experiment",
    "ExperimentAnalysis", "ExportFormat", "FailureConfig", "JupyterNotebookReporter",
    "PlacementGroupFactory", "ProgressReporter", "Result", "ResultGrid", "RunConfig", "Stopper",
    "SyncConfig", "Trainable", "Trial", "TuneConfig", "TuneContext", "TuneError", "Tuner",
    "checkpoint_dir", "choice", "create_scheduler", "create_searcher", "get_checkpoint",
    "get_context", "get_trial_dir", "get_trial_id", "get_trial_name", "get_trial_resources",
    "grid_search", "is_session_enabled", "load_checkpoint", "logger", "lograndint", "loguniform",
    "qlograndint", "qloguniform", "qrandint", "qrandn", "quniform", "randint", "randn",
    "register_trainable", "report", "run", "run_experiments", "sample_from", "save_checkpoint",
    "schedulers", "search", "stopper", "uniform", "with_parameters", "with_resources",
]


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""The names of Ray Train: those of manta.sgd, whose successor it was, and of its later versions the
configs, checkpoints and results of trainers with fit(), such as manta.train.torch.TorchTrainer."""

from __future__ import annotations

import importlib
from typing import Any

from manta._frameworks import functions as _functions
from manta._frameworks.base import Backend, BackendConfig
from manta._frameworks.horovod.config import HorovodConfig
from manta._frameworks.tensorflow.config import TensorflowConfig
from manta._frameworks.torch.config import TorchConfig
from manta._front import look_up as _look_up
from manta._front.callbacks import (PrintCallback, ProgressCallback, SGDCallback,
                                    TrainingCallback)
from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.configs import (CheckpointConfig, DataConfig, FailureConfig, RunConfig,
                                      ScalingConfig, SyncConfig)
from manta._front.datasets import (get_data_shard, get_dataset, get_dataset_shard,
                                   get_datasets)
from manta._front.fit.context import get_checkpoint, get_context
from manta._front.fit.context import report_either as report
from manta._front.fit.failure import TrainingFailedError
from manta._front.fit.result import Result
from manta._front.fit.trainer import DataParallelTrainer
from manta._front.hosts import Host
from manta._front.session import (SessionError, heartbeat, in_worker, load_checkpoint, local_rank,
                                  local_world_size, node_rank, preempted, save_checkpoint,
                                  world_rank, world_size)
from manta._front.sinks import (CSVCallback, JsonCallback, JsonLoggerCallback, TBXLoggerCallback,
                                TensorboardCallback)
from manta._front.trackers import (MLflowLoggerCallback, MlflowCallback, WandbCallback,
                                   WandbLoggerCallback)
from manta._front.strategy import CheckpointStrategy
from manta._front.trainer import Trainer
from manta._front.worker_group import WorkerGroup

__all__ = ["Backend", "BackendConfig", "CSVCallback", "Checkpoint", "CheckpointConfig",
           "CheckpointStrategy", "DataConfig", "DataParallelTrainer", "FailureConfig",
           "HorovodConfig", "Host", "JsonCallback", "JsonLoggerCallback", "MLflowLoggerCallback",
           "MlflowCallback", "PrintCallback", "ProgressCallback", "Result", "RunConfig",
           "SGDCallback", "ScalingConfig", "SessionError", "SyncConfig", "TBXLoggerCallback",
           "TensorboardCallback", "TensorflowConfig", "TorchConfig", "Trainer", "TrainingCallback",
           "TrainingFailedError", "WandbCallback", "WandbLoggerCallback", "WorkerGroup",
           "get_checkpoint", "get_context", "get_data_shard", "get_dataset", "get_dataset_shard",
           "get_datasets", "heartbeat", "in_worker", "load_checkpoint", "local_rank",
           "local_world_size", "node_rank", "preempted", "report", "save_checkpoint", "world_rank",
           "world_size"]

_SUBMODULES = ("base_trainer", "callbacks", "data_parallel_trainer", "horovod", "tensorflow",
               "torch")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return _look_up(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_functions(), *_SUBMODULES})

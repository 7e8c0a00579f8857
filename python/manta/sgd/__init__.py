# SPDX-License-Identifier: Apache-2.0
"""The trainer, and what a train function calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manta._frameworks import functions as _functions
from manta._frameworks.base import Backend, BackendConfig
from manta._frameworks.horovod.config import HorovodConfig
from manta._frameworks.tensorflow.config import TensorflowConfig
from manta._frameworks.torch.config import TorchConfig
from manta._front import look_up as _look_up
from manta._front.datasets import get_data_shard, get_dataset, get_dataset_shard, get_datasets
from manta._front.hosts import Host
from manta._front.session import (SessionError, heartbeat, in_worker, load_checkpoint, local_rank,
                                  local_world_size, node_rank, preempted, report, save_checkpoint,
                                  world_rank, world_size)
from manta._front.strategy import CheckpointStrategy
from manta._front.trainer import Trainer
from manta._front.worker_group import WorkerGroup
from manta.sgd.callbacks import (CSVCallback, JsonCallback, JsonLoggerCallback,
                                 MLflowLoggerCallback, MlflowCallback, PrintCallback,
                                 ProgressCallback, SGDCallback, TBXLoggerCallback,
                                 TensorboardCallback, TrainingCallback, WandbCallback,
                                 WandbLoggerCallback)

if TYPE_CHECKING:
    from manta._frameworks.tensorflow.dataset import prepare_dataset_shard as prepare_dataset_shard
    from manta._frameworks.torch.device import get_device as get_device
    from manta._frameworks.torch.loader import prepare_data_loader as prepare_data_loader
    from manta._frameworks.torch.loading import load_checkpoint_into as load_checkpoint_into
    from manta._frameworks.torch.prepare import accelerate as accelerate
    from manta._frameworks.torch.prepare import backward as backward
    from manta._frameworks.torch.prepare import prepare_model as prepare_model
    from manta._frameworks.torch.prepare import prepare_optimizer as prepare_optimizer
    from manta._frameworks.torch.prepare import unscale as unscale
    from manta._frameworks.torch.seed import enable_reproducibility as enable_reproducibility
    from manta._frameworks.torch.seed import rng_state as rng_state
    from manta._frameworks.torch.seed import set_rng_state as set_rng_state

__all__ = ["Backend", "BackendConfig", "CSVCallback", "CheckpointStrategy", "HorovodConfig", "Host",
           "JsonCallback", "JsonLoggerCallback", "MLflowLoggerCallback", "MlflowCallback",
           "PrintCallback", "ProgressCallback", "SGDCallback", "SessionError", "TBXLoggerCallback",
           "TensorboardCallback", "TensorflowConfig", "TorchConfig", "Trainer", "TrainingCallback",
           "WandbCallback", "WandbLoggerCallback", "WorkerGroup", "get_data_shard", "get_dataset",
           "get_dataset_shard", "get_datasets", "heartbeat", "in_worker", "load_checkpoint",
           "local_rank", "local_world_size", "node_rank", "preempted", "report", "save_checkpoint",
           "world_rank", "world_size"]


def __getattr__(name: str) -> Any:
    return _look_up(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_functions()})

# SPDX-License-Identifier: Apache-2.0
"""The trainer, and what a train function calls."""

from manta.sgd.backend import Backend, BackendConfig
from manta.sgd.callbacks import PrintCallback, SGDCallback, TrainingCallback
from manta.sgd.session import (SessionError, heartbeat, in_worker, load_checkpoint, local_rank,
                               local_world_size, node_rank, preempted, report, save_checkpoint,
                               world_rank, world_size)
from manta.sgd.strategy import CheckpointStrategy
from manta.sgd.torch_backend import TorchConfig
from manta.sgd.trainer import Trainer
from manta.sgd.worker_group import WorkerGroup

__all__ = ["Backend", "BackendConfig", "CheckpointStrategy", "PrintCallback", "SGDCallback",
           "SessionError", "TorchConfig", "Trainer", "TrainingCallback", "WorkerGroup",
           "heartbeat", "in_worker", "load_checkpoint", "local_rank", "local_world_size",
           "node_rank", "preempted", "report", "save_checkpoint", "world_rank", "world_size"]

# SPDX-License-Identifier: Apache-2.0
"""The names of Ray Train, which was the successor of Ray SGD: those of manta.sgd."""

from __future__ import annotations

import importlib
from typing import Any

from manta._frameworks import functions as _functions
from manta._frameworks.base import Backend, BackendConfig
from manta._frameworks.torch.config import TorchConfig
from manta._front import look_up as _look_up
from manta._front.callbacks import PrintCallback, SGDCallback, TrainingCallback
from manta._front.hosts import Host
from manta._front.session import (SessionError, heartbeat, in_worker, load_checkpoint, local_rank,
                                  local_world_size, node_rank, preempted, report, save_checkpoint,
                                  world_rank, world_size)
from manta._front.strategy import CheckpointStrategy
from manta._front.trainer import Trainer
from manta._front.worker_group import WorkerGroup

__all__ = ["Backend", "BackendConfig", "CheckpointStrategy", "Host", "PrintCallback", "SGDCallback",
           "SessionError", "TorchConfig", "Trainer", "TrainingCallback", "WorkerGroup", "heartbeat",
           "in_worker", "load_checkpoint", "local_rank", "local_world_size", "node_rank",
           "preempted", "report", "save_checkpoint", "world_rank", "world_size"]

_SUBMODULES = ("callbacks", "torch")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return _look_up(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_functions(), *_SUBMODULES})

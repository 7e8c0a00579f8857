# SPDX-License-Identifier: Apache-2.0
"""The trainer, and what a train function calls."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from manta._frameworks import get as _framework
from manta._frameworks.base import Backend, BackendConfig
from manta._frameworks.torch.config import TorchConfig
from manta.sgd.callbacks import PrintCallback, SGDCallback, TrainingCallback
from manta.sgd.hosts import Host
from manta.sgd.session import (SessionError, heartbeat, in_worker, load_checkpoint, local_rank,
                               local_world_size, node_rank, preempted, report, save_checkpoint,
                               world_rank, world_size)
from manta.sgd.strategy import CheckpointStrategy
from manta.sgd.trainer import Trainer
from manta.sgd.worker_group import WorkerGroup

if TYPE_CHECKING:
    from manta._frameworks.torch.device import get_device as get_device
    from manta._frameworks.torch.loader import prepare_data_loader as prepare_data_loader
    from manta._frameworks.torch.prepare import accelerate as accelerate
    from manta._frameworks.torch.prepare import backward as backward
    from manta._frameworks.torch.prepare import prepare_model as prepare_model
    from manta._frameworks.torch.prepare import prepare_optimizer as prepare_optimizer
    from manta._frameworks.torch.prepare import unscale as unscale
    from manta._frameworks.torch.seed import enable_reproducibility as enable_reproducibility
    from manta._frameworks.torch.seed import rng_state as rng_state
    from manta._frameworks.torch.seed import set_rng_state as set_rng_state

__all__ = ["Backend", "BackendConfig", "CheckpointStrategy", "Host", "PrintCallback", "SGDCallback",
           "SessionError", "TorchConfig", "Trainer", "TrainingCallback", "WorkerGroup", "heartbeat",
           "in_worker", "load_checkpoint", "local_rank", "local_world_size", "node_rank",
           "preempted", "report", "save_checkpoint", "world_rank", "world_size"]

_ON_TORCH = _framework("torch").functions  # not in __all__: to import these is to import torch


def __getattr__(name: str) -> Any:
    if name in _ON_TORCH:
        module = importlib.import_module(f"manta._frameworks.torch.{_ON_TORCH[name]}")
        return getattr(module, name)
    if name.startswith("_"):
        raise AttributeError(f"module 'manta.sgd' has no attribute {name!r}")
    from manta import _names
    raise AttributeError(_names.absent("manta.sgd", name, [*__all__, *_ON_TORCH]))


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_TORCH})

# SPDX-License-Identifier: Apache-2.0
"""Distributed trials with torch: every worker has a process group of its trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manta._front.tuned import TunedRun
from manta.tune.integration import _distributed
from manta.tune.integration._distributed import (distributed_checkpoint_dir,
                                                 is_distributed_trainable)

__all__ = ["DistributedTrainableCreator", "distributed_checkpoint_dir", "is_distributed_trainable"]


def DistributedTrainableCreator(func: Callable[..., Any], num_workers: int = 1,
                                num_cpus_per_worker: float = 1, num_gpus_per_worker: float = 0,
                                backend: str | None = None, timeout_s: float = 1800,
                                use_gpu: bool = False, **others: Any) -> TunedRun:
    """func(config) with so many workers as one trainable, for tune.run; so does
    Trainer("torch", num_workers=…).to_tune_trainable(func)."""
    from manta._frameworks.torch.config import TorchConfig
    return _distributed.trainable(TorchConfig(backend, timeout_s=timeout_s), func, num_workers,
                                  num_cpus_per_worker, num_gpus_per_worker or int(use_gpu), others)

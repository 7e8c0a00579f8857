# SPDX-License-Identifier: Apache-2.0
"""Distributed trials with TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manta._front.tuned import TunedRun
from manta.tune.integration import _distributed
from manta.tune.integration._distributed import distributed_checkpoint_dir

__all__ = ["DistributedTrainableCreator", "distributed_checkpoint_dir"]


def DistributedTrainableCreator(func: Callable[..., Any], num_workers: int = 2,
                                num_cpus_per_worker: float = 1, num_gpus_per_worker: float = 0,
                                **others: Any) -> TunedRun:
    """func(config) with so many workers as one trainable, for tune.run; so does
    Trainer("tensorflow", num_workers=…).to_tune_trainable(func)."""
    return _distributed.trainable("tensorflow", func, num_workers, num_cpus_per_worker,
                                  num_gpus_per_worker, others)

# SPDX-License-Identifier: Apache-2.0
"""The trainer, and what a train function calls."""

from manta.sgd.session import (heartbeat, in_worker, load_checkpoint, local_rank, local_world_size,
                               node_rank, preempted, report, save_checkpoint, world_rank,
                               world_size)
from manta.sgd.trainer import Trainer

__all__ = ["Trainer", "heartbeat", "in_worker", "load_checkpoint", "local_rank",
           "local_world_size", "node_rank", "preempted", "report", "save_checkpoint", "world_rank",
           "world_size"]

# SPDX-License-Identifier: Apache-2.0
"""What a train function calls: session.report({"loss": 0.5}, checkpoint=…)."""

from __future__ import annotations

from manta._front.datasets import get_dataset_shard
from manta._front.fit.context import (get_checkpoint, get_experiment_name, get_local_rank,
                                      get_local_world_size, get_node_rank,
                                      get_trial_dir, get_trial_id, get_trial_name,
                                      get_trial_resources, get_world_rank, get_world_size, report)

__all__ = ["get_checkpoint", "get_dataset_shard", "get_experiment_name", "get_local_rank",
           "get_local_world_size", "get_node_rank", "get_trial_dir", "get_trial_id",
           "get_trial_name", "get_trial_resources", "get_world_rank", "get_world_size", "report"]

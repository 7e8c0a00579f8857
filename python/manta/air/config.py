# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for."""

from __future__ import annotations

from manta._front.fit.configs import (CheckpointConfig, FailureConfig, RunConfig, ScalingConfig,
                                      SyncConfig)

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]

# SPDX-License-Identifier: Apache-2.0
"""The names of Ray AIR: configs, checkpoints and results of manta.train's trainers, and `session`,
what their train functions call."""

from __future__ import annotations

import importlib
from typing import Any

from manta._front import refuse as _refuse
from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.configs import (CheckpointConfig, FailureConfig, RunConfig, ScalingConfig,
                                      SyncConfig)
from manta._front.fit.result import Result

__all__ = ["Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig",
           "ScalingConfig", "SyncConfig", "session"]

_SUBMODULES = ("checkpoint", "config", "integrations", "result", "session")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    _refuse(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})

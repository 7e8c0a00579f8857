# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases: a callback for RunConfig and tune.run, and what a train function calls to log
by itself."""

from __future__ import annotations

from typing import NoReturn

from manta._front import refuse as _refuse
from manta._front.fit.tracked import WandbTrainableMixin, setup_wandb, wandb_mixin
from manta._front.trackers import WandbLoggerCallback

__all__ = ["WandbLoggerCallback", "WandbTrainableMixin", "setup_wandb",
           "wandb_mixin"]
__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""The first generation of Ray's training API: ray.util.sgd, ray.experimental.sgd. Programs import
its names from there (manta._aliases); no other front names this package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from manta._front import refuse as _refuse
from manta._front.trainable import Trainable
from manta._operator.creators import PyTorchTrainer
from manta._operator.keras import TFTrainable, TFTrainer
from manta._operator.trainable import BaseTorchTrainable, PyTorchTrainable
from manta._operator.trainer import TorchTrainer

if TYPE_CHECKING:
    from manta._frameworks.torch.operator import CreatorOperator as CreatorOperator
    from manta._frameworks.torch.operator import TrainingOperator as TrainingOperator

__all__ = ["BaseTorchTrainable", "PyTorchTrainable", "PyTorchTrainer", "TFTrainable", "TFTrainer",
           "TorchTrainer", "Trainable"]

_OPERATORS = ("CreatorOperator", "TrainingOperator")  # to import one is to import the framework


def __getattr__(name: str) -> Any:
    if name in _OPERATORS:
        return getattr(importlib.import_module("manta._frameworks.torch.operator"), name)
    _refuse("manta.util.sgd", name, [*__all__, *_OPERATORS])


def __dir__() -> list[str]:
    return sorted({*__all__, *_OPERATORS})

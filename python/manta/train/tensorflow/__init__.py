# SPDX-License-Identifier: Apache-2.0
"""What a program on TensorFlow imports, by the names of Ray Train. To import this imports no
TensorFlow: what needs it is looked up when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from manta._frameworks.tensorflow.config import TensorflowConfig
from manta._front import refuse as _refuse

if TYPE_CHECKING:
    from manta._frameworks.tensorflow.dataset import prepare_dataset_shard as prepare_dataset_shard

__all__ = ["TensorflowConfig"]

_LATER = {"prepare_dataset_shard": "manta._frameworks.tensorflow.dataset"}


def __getattr__(name: str) -> Any:
    if name == "keras":
        return importlib.import_module(f"{__name__}.keras")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    _refuse(__name__, name, [*__all__, *_LATER, "keras"])


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "keras"})

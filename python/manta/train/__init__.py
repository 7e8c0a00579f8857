# SPDX-License-Identifier: Apache-2.0
"""The names of Ray Train: those of manta.sgd, whose successor it was."""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = {"callbacks", "torch"}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"manta.train.{name}")
    return getattr(importlib.import_module("manta.sgd"), name)

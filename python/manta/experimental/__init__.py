# SPDX-License-Identifier: Apache-2.0
"""Where programs of the oldest generation look for sgd."""

from __future__ import annotations

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name == "sgd":
        return importlib.import_module(f"{__name__}.sgd")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

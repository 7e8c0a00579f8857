# SPDX-License-Identifier: Apache-2.0
"""manta turns a training function into a distributed, fault-tolerant training run.

    from manta.sgd import Trainer

    def train(config):
        ...

    results = Trainer(num_workers=2).run(train, config={"lr": 0.1})

Submodules load when they are used; `import manta` itself imports no framework.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

if sys.platform != "linux":
    raise ImportError("manta runs on Linux only")

from manta._manta import (Aborted, Canceled, Error, NoRoom, PeerLost, Preempted, WorkerLost,
                          version)

__version__ = version()
__all__ = ["Aborted", "Canceled", "Error", "NoRoom", "PeerLost", "Preempted", "WorkerLost",
           "experimental", "init", "is_initialized", "prestart", "sgd", "shutdown", "train", "util"]

_SUBMODULES = {"experimental", "sgd", "train", "util"}
_FUNCTIONS = {"init", "is_initialized", "prestart", "shutdown"}  # of manta._runtime.driver


class _FirstFinder:
    """Finds the modules that are here by another path. Before all others: where a stub lies they
    would find a folder."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("manta.") or name == "manta._aliases":
            return None
        from manta import _aliases
        return _aliases.find(name)


class _LastFinder:
    """Says of a module that is not here what to write instead."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("manta."):
            importlib.import_module("manta._names").refuse(name)


sys.meta_path.insert(0, _FirstFinder)
sys.meta_path.append(_LastFinder)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"manta.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module("manta._runtime.driver"), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'manta' has no attribute {name!r}")
    raise AttributeError(importlib.import_module("manta._names").absent("manta", name, __all__))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

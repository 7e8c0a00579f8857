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

    from manta._front.session import SessionError as SessionError
    from manta._runtime.errors import CollectiveTimeout as CollectiveTimeout
    from manta._runtime.errors import TrainingFailed as TrainingFailed

if sys.platform != "linux":
    raise ImportError("manta runs on Linux only")

from manta._manta import (Aborted, Canceled, Error, NoColumn, NoRoom, PeerLost, Preempted,
                          WorkerLost, version)

__version__ = version()
__all__ = ["Aborted", "Canceled", "Error", "NoColumn", "NoRoom", "ObjectRef", "PeerLost",
           "Preempted", "WorkerLost", "air", "available_resources", "cluster_resources",
           "compat", "data", "experimental", "get", "init", "is_initialized", "nodes",
           "prestart", "put", "sgd", "shutdown", "train", "tune", "util", "wait"]

_FRONTS = ("air", "sgd", "train", "tune")
_SUBMODULES = {*_FRONTS, "compat", "data", "experimental", "util"}
_OLDER = ("manta.experimental", "manta.util")  # paths of manta._aliases that have a folder
_DEFINED_IN = {
    **dict.fromkeys(("init", "is_initialized", "prestart", "shutdown"), "manta._runtime.driver"),
    **dict.fromkeys(("ObjectRef", "get", "put", "wait"), "manta._runtime.objects"),
    **dict.fromkeys(("available_resources", "cluster_resources", "nodes"),
                    "manta._runtime.inventory"),
    # Classes whose objects users keep. Pickles name them here, whatever front they come from.
    **dict.fromkeys(("CollectiveTimeout", "TrainingFailed"), "manta._runtime.errors"),
    **dict.fromkeys(("Backend", "BackendConfig"), "manta._frameworks.base"),
    **dict.fromkeys(("PrintCallback", "ProgressCallback", "SGDCallback"), "manta._front.callbacks"),
    **dict.fromkeys(("CSVCallback", "JsonCallback", "TensorboardCallback"), "manta._front.sinks"),
    **dict.fromkeys(("MlflowCallback", "WandbCallback"), "manta._front.trackers"),
    **dict.fromkeys(("AverageMeter", "AverageMeterCollection"), "manta._front.meters"),
    "CheckpointStrategy": "manta._front.strategy", "Host": "manta._front.hosts",
    "Reports": "manta._front.run", "SessionError": "manta._front.session",
    "HorovodConfig": "manta._frameworks.horovod.config",
    "TensorflowCheckpoint": "manta._frameworks.tensorflow.checkpoint",
    "TensorflowConfig": "manta._frameworks.tensorflow.config",
    "TorchCheckpoint": "manta._frameworks.torch.checkpoint",
    "TorchConfig": "manta._frameworks.torch.config",
    **dict.fromkeys(("CheckpointConfig", "DataConfig", "FailureConfig", "RunConfig",
                     "ScalingConfig", "SyncConfig"), "manta._front.fit.configs"),
    "Expression": "manta.data.expression", "Schema": "manta.data.schema",
    "Checkpoint": "manta._front.fit.checkpoint", "Result": "manta._front.fit.result",
    "TrainingFailedError": "manta._front.fit.failure",
    "Domain": "manta.tune._space", "PlacementGroupFactory": "manta.tune._resources",
    "TuneConfig": "manta.tune._tuner",
    "TuneError": "manta.tune._analysis",
}


class _FirstFinder:
    """Finds the modules that programs import by an older path. Before all others: where their stubs
    lie those would find a folder."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(_OLDER):
            return None
        from manta import _aliases
        return _aliases.find(name)


class _LastFinder:
    """Finds those that pickles name by a path that is no more, and says of a module that is not
    here what to write instead."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("manta."):
            return None
        from manta import _aliases, _names
        found = _aliases.find(name)
        if found is None:
            _names.refuse(name)
        return found


sys.meta_path.insert(0, _FirstFinder)
sys.meta_path.append(_LastFinder)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"manta.{name}")
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    if name.startswith("_"):
        raise AttributeError(f"module 'manta' has no attribute {name!r}")
    raise AttributeError(importlib.import_module("manta._names").absent("manta", name, __all__))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

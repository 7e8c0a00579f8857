# SPDX-License-Identifier: Apache-2.0
"""The names of ray: which module of manta has them, and what to say of those that none has."""

from __future__ import annotations

import importlib
import importlib.util

from manta import _aliases, _names

_CORE = "manta.compat.ray.core"

# Modules that have names of their own, each with the module that defines it. Below them are others.
OWN: dict[str, dict[str, str]] = {
    "ray": {
        **dict.fromkeys(("ObjectRef", "available_resources", "cluster_resources", "get",
                         "is_initialized", "nodes", "put", "shutdown", "wait"), "manta"),
        **dict.fromkeys(("__commit__", "__version__", "get_gpu_ids", "init"), _CORE),
    },
    "ray.util": dict.fromkeys(("get_node_ip_address",), _CORE),
}

# Packages of ray that are the packages of manta of the same name, with all below them.
SAME = ("air", "data", "experimental", "sgd", "train", "tune", "util")

# Modules that are another one of manta: programs name the file of Ray that defines a class.
OTHER = {
    "ray.cloudpickle": "cloudpickle", "ray.tune.execution": "manta.tune",
    "ray.tune.suggest.search": "manta.tune.search",
    "ray.exceptions": "manta.compat.ray.exceptions",
    **{f"ray.{front}.{module}": f"manta.{front}" for front, modules in {
        "data": ("context", "dataset_pipeline", "datastream", "iterator", "read_api"),
        "train": ("backend", "checkpoint", "context", "session", "trainer", "worker_group"),
        "train.callbacks": ("callback", "logging", "print"),
        "train.horovod": ("config", "horovod_trainer"),
        "train.tensorflow": ("config", "tensorflow_trainer"),
        "train.torch": ("config", "torch_checkpoint", "torch_trainer", "train_loop_utils"),
        "tune": ("analysis", "analysis.experiment_analysis", "callback", "error",
                 "execution.placement_groups", "experiment", "experiment.experiment",
                 "experiment.trial", "progress_reporter", "registry", "result_grid", "sample",
                 "syncer", "trainable", "trainable.trainable", "trial", "tune", "tune_config",
                 "tuner", "utils.placement_groups"),
        "tune.logger": ("csv", "json", "logger"),
        "tune.schedulers": ("async_hyperband", "hb_bohb", "hyperband", "median_stopping_rule",
                            "pb2", "pbt", "resource_changing_scheduler", "trial_scheduler"),
        "tune.search": ("basic_variant", "concurrency_limiter", "optuna", "optuna.optuna_search",
                        "repeater", "sample", "searcher"),
        "tune.stopper": ("experiment_plateau", "function_stopper", "maximum_iteration", "noop",
                         "stopper", "timeout", "trial_plateau"),
        "tune.utils": ("util",),
        "util.sgd.v2": ("backends", "backends.backend", "backends.horovod", "backends.tensorflow",
                        "backends.torch", "checkpoint", "session", "trainer", "worker_group"),
        "util.sgd.v2.callbacks": ("callback", "logging"),
    }.items() for module in modules},
    **dict.fromkeys(("ray.tune.suggest", "ray.tune.suggest.basic_variant",
                     "ray.tune.suggest.optuna", "ray.tune.suggest.repeater",
                     "ray.tune.suggest.suggestion"),
                    "manta.tune.search"),
    **{f"ray.tune.integration.{name}": f"manta.air.integrations.{name}"
       for name in ("mlflow", "wandb")},
    **{f"ray.tune.logger.{module}": "manta.tune.logger" for module in (
        "aim", "csv", "json", "logger", "tensorboardx", "unified")},
}

_PAGE = "docs/from-ray.md lists the names of ray that manta has"
_OUTSIDE = "manta has the training libraries of Ray alone; " + _PAGE


def target(name: str) -> str | None:
    """The module of manta that a module of ray is, if there is one; None: there is none."""
    _, *parts = name.split(".")
    if name in OTHER or parts[0] not in SAME or any(part.startswith("_") for part in parts):
        return OTHER.get(name)
    return ".".join(("manta", *parts))


def public(module: str) -> list[str]:
    """What a module of OWN has, modules below it included."""
    found = {name for name in OWN[module] if not name.startswith("_")}
    if module == "ray":
        found |= {name for name in SAME if importlib.util.find_spec(f"manta.{name}")}
    below = [*OWN, *OTHER, *("ray" + path[5:] for path in _aliases.OLDER)]
    return sorted(found | {path.rpartition(".")[2] for path in below
                           if path.rpartition(".")[0] == module})


def absent_module(name: str) -> str:
    """What is said when nobody has found it: `import ray.x` and `from ray import x` end here."""
    other = "manta" + name[3:]
    if said := _names.absent_module(other):
        return said.replace(other, name, 1)
    parent, _, last = name.rpartition(".")
    near = _names.nearest(last, _known(parent))
    return (f"{name} is not in this version of manta\nhint: " +
            (f"{parent} has {near!r}; {_PAGE}" if near else _OUTSIDE))


def _known(module: str) -> list[str]:
    """The names of a module that is there."""
    if module in OWN:
        return public(module)
    found = target(module)
    return dir(importlib.import_module(found)) if found else []

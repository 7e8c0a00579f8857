# SPDX-License-Identifier: Apache-2.0
"""Modules by further paths: those by which programs of each generation of Ray's training API import
their names, and those that pickles of earlier versions name. One table says which modules have the
names of each path.

(1) Names are looked up in the modules of the row, in order, when they are asked for: nothing is
    copied. Classes and functions keep the module that defines them, and pickles name that one.
(2) What is in none of them is answered as the last one does.
(3) An alias is a package without a folder: importing something below it that is not in the table
    ends at manta's last finder, which says what to write instead.

Editors know the paths of programs by stubs, one for each row (`manta/util/sgd/callbacks.pyi`).
"""

from __future__ import annotations

import importlib
import importlib.machinery
from types import ModuleType
from typing import Any

# A generation is the modules that have its names; the first that has one counts. Generation 3,
# ray.train and ray.air, has modules of its own.
_OPERATOR = ("manta._operator",)
GENERATION_1 = (*_OPERATOR, "manta.sgd")  # ray.experimental.sgd, ray.util.sgd: TorchTrainer(…)
GENERATION_2 = ("manta.sgd",)  # ray.sgd, ray.util.sgd.v2: Trainer("torch").run(train)
_CALLBACKS = ("manta.sgd.callbacks",)
_CONSTANTS = ("manta._front.schedule",)
_UTILS = ("manta._operator.override", "manta._front.meters")

# The paths of programs.
OLDER: dict[str, tuple[str, ...]] = {
    "manta.experimental": (),
    "manta.experimental.sgd": GENERATION_1,
    "manta.experimental.sgd.callbacks": _CALLBACKS,
    "manta.experimental.sgd.pytorch": _OPERATOR,
    "manta.experimental.sgd.pytorch.pytorch_trainer": _OPERATOR,
    "manta.experimental.sgd.tf": _OPERATOR,
    "manta.experimental.sgd.utils": _UTILS,
    "manta.util": (),
    "manta.util.client": ("manta._front.client",),
    "manta.util.sgd": GENERATION_1,
    "manta.util.sgd.callbacks": _CALLBACKS,
    "manta.util.sgd.pytorch": _OPERATOR,
    "manta.util.sgd.pytorch.pytorch_trainer": _OPERATOR,
    "manta.util.sgd.tf": _OPERATOR,
    "manta.util.sgd.tf.tf_trainer": _OPERATOR,
    "manta.util.sgd.torch": _OPERATOR,
    "manta.util.sgd.torch.constants": _CONSTANTS,
    "manta.util.sgd.torch.torch_trainer": _OPERATOR,
    "manta.util.sgd.torch.training_operator": _OPERATOR,
    "manta.util.sgd.utils": _UTILS,
    "manta.util.sgd.v2": GENERATION_2,
    "manta.util.sgd.v2.callbacks": _CALLBACKS,
}

# Those of pickles that an earlier version has left in checkpoints and in the directories of runs.
MOVED: dict[str, tuple[str, ...]] = {
    "manta._errors": ("manta._runtime.errors",),
    "manta._late": ("manta._runtime.errors",),
    "manta._main": ("manta._pickled",),
    "manta._raised": ("manta._pickled",),
    "manta._torch": ("manta._frameworks.torch",),
    "manta._torch.loader": ("manta._frameworks.torch.loader",),
    "manta._torch.prepare": ("manta._frameworks.torch.prepare",),
    "manta._torch.sampler": ("manta._frameworks.torch.sampler",),
    "manta.sgd.backend": ("manta._frameworks.base",),
    "manta.sgd.hosts": ("manta._front.hosts",),
    "manta.sgd.run": ("manta._front.run",),
    "manta.sgd.session": ("manta._front.session",),
    "manta.sgd.strategy": ("manta._front.strategy",),
    "manta.sgd.torch_backend": ("manta._frameworks.torch.config",),
    "manta.sgd.trainer": ("manta._front.trainer",),
    "manta.sgd.worker_group": ("manta._front.worker_group",),
}

ALIASES = OLDER | MOVED


class Alias(ModuleType):
    """A path of the table. What is below it in the table counts more than the names of its
    modules."""

    def __getattr__(self, name: str) -> Any:
        if f"{self.__name__}.{name}" in ALIASES:
            return importlib.import_module(f"{self.__name__}.{name}")
        absent = AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name.startswith("__") and name != "__all__":  # who asks every module for its __file__
            raise absent
        for module in modules(self.__name__):
            try:
                return getattr(module, name)
            except AttributeError as e:
                absent = e
        raise absent

    def __dir__(self) -> list[str]:
        below = [path.rpartition(".")[2] for path in ALIASES
                 if path.rpartition(".")[0] == self.__name__]
        return sorted({*vars(self), *below, *(n for m in modules(self.__name__) for n in dir(m))})

    def __reduce__(self) -> Any:
        """By its path, in a pickler that knows no modules or only those of the plain type."""
        return importlib.import_module, (self.__name__,)


def modules(path: str) -> list[ModuleType]:
    """Those that have its names."""
    return [importlib.import_module(name) for name in ALIASES[path]]


class _Loader:
    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> ModuleType:
        names = " and ".join(ALIASES[spec.name])
        return Alias(spec.name, f"The names of {names}." if names else "Older paths are below it.")

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        modules(module.__name__)  # what fails, fails in the import


def find(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of a path of the table; None: it is in none of the rows."""
    if name not in ALIASES:
        return None
    return importlib.machinery.ModuleSpec(
        name, _Loader, origin=", ".join(ALIASES[name]),  # type: ignore[arg-type]
        is_package=True)

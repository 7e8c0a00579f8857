# SPDX-License-Identifier: Apache-2.0
"""How `import ray.…` finds modules of manta."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from manta._names import NotInThisVersion, is_import
from manta.compat.ray import names


class Finder:
    """First in sys.meta_path: a Ray that is installed is not looked for."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "ray" and not name.startswith("ray."):
            return None
        if name in names.OWN:
            return ModuleSpec(name, _OwnLoader, origin="manta",  # type: ignore[arg-type]
                              is_package=True)
        same = names.target(name)
        if same and _is_there(same):
            return ModuleSpec(name, _SameLoader, origin=same)  # type: ignore[arg-type]
        if is_import():
            raise NotInThisVersion(names.absent_module(name), name=None)
        return None


def _is_there(module: str) -> bool:
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # nor is what it is below
        return False


class _SameLoader:
    """Puts a module of manta itself into sys.modules: the import system takes what is there."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        spec = module.__spec__
        assert spec and spec.origin
        sys.modules[spec.name] = importlib.import_module(spec.origin)


class _OwnLoader:
    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return Own(spec.name, f"{spec.name}, as manta offers it.")

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        vars(module)["__all__"] = names.public(module.__name__)


class Own(ModuleType):
    """A module of names.OWN."""

    def __getattr__(self, name: str) -> Any:
        if name in names.OWN[self.__name__]:
            where = importlib.import_module(names.OWN[self.__name__][name])
            return getattr(where, name)
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            return importlib.import_module(f"{self.__name__}.{name}")
        except NotInThisVersion as e:
            raise AttributeError(str(e)) from None

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *names.public(self.__name__)})

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)

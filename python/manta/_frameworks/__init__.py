# SPDX-License-Identifier: Apache-2.0
"""Frameworks by name. Each has a file or a folder here with a subclass of base.Framework, and a row
in this table; all that is about PyTorch lies in `torch/`, and so with the others.

(1) A row is imported when its framework is asked for, and importing it does not import the
    framework: a driver that never computes does not pay for it.
(2) Everybody else asks here, and calls no framework by its name.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manta._frameworks.base import Framework
    from manta._frameworks.tensors import Tensors


class _Row:
    """module: that users import. where, cls: the module of ours, and the class in it. words:
    functions of manta._pickled that stand for its tensors."""

    def __init__(self, module: str, where: str, cls: str, words: tuple[str, ...] = ()):
        self.module, self.where, self.cls, self.words = module, where, cls, words


_ROWS = {
    "none": _Row("", "manta._frameworks.plain", "Plain"),
    "torch": _Row("torch", "manta._frameworks.torch", "Torch", ("tensor", "piece")),
    "tensorflow": _Row("tensorflow", "manta._frameworks.tensorflow", "Tensorflow"),
    "horovod": _Row("horovod", "manta._frameworks.horovod", "Horovod"),
}
_AUTOMATIC = ("torch",)  # backend="auto": the first of them that is installed

MODULES = frozenset(row.module for row in _ROWS.values() if row.module)


def _row(name: str) -> _Row:
    if name not in _ROWS:
        raise ValueError(f"unknown framework {name!r}\nhint: it is one of {', '.join(_ROWS)}")
    return _ROWS[name]


@functools.cache
def get(name: str) -> Framework:
    row = _row(name)
    made: Framework = getattr(importlib.import_module(row.where), row.cls)()
    return made


def names() -> list[str]:
    """Those that there are, without the one that stands for none."""
    return [name for name, row in _ROWS.items() if row.module]


def imported() -> list[Framework]:
    """Those that this process has imported, whoever did; none is always among them."""
    return [get(name) for name, row in _ROWS.items()
            if not row.module or sys.modules.get(row.module) is not None]


def all_tensors() -> list[Tensors]:
    """Of those: what nobody has imported, nobody has tensors of."""
    return [found for framework in imported() if (found := framework.tensors())]


def owner_of(word: str) -> Framework | None:
    """Whose tensors a function of manta._pickled stands for."""
    return next((get(name) for name, row in _ROWS.items() if word in row.words), None)


@functools.cache
def functions() -> dict[str, str]:
    """What train functions call of all of them: name -> module, which imports the framework."""
    return {function: f"{_ROWS[name].where}.{module}" for name in _ROWS
            for function, module in get(name).functions.items()}


def is_installed(name: str) -> bool:
    """Found without importing it."""
    if not (module := _row(name).module):
        return True
    from importlib.util import find_spec
    spec = find_spec(module)
    return spec is not None and spec.origin is not None  # a folder of that name is none


def automatic() -> str:
    """What backend="auto" stands for."""
    return next((name for name in _AUTOMATIC if is_installed(name)), "none")

# SPDX-License-Identifier: Apache-2.0
"""What the fronts have in common. A front is a package by whose names users import manta: `sgd`,
`train`, `air`. None of them imports another; each shows what it has of here and of the
frameworks."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn, Sequence

from manta import _frameworks


def look_up(front: str, name: str, known: Sequence[str]) -> Any:
    """What `__getattr__` of a front gives. Functions of a framework are not among the names that
    it has: to import one is to import the framework."""
    functions = _frameworks.functions()
    if name in functions:
        return getattr(importlib.import_module(functions[name]), name)
    refuse(front, name, [*known, *functions])


def refuse(front: str, name: str, known: Sequence[str]) -> NoReturn:
    """Says what to write instead of a name that a module of a front does not have."""
    if name.startswith("_"):
        raise AttributeError(f"module {front!r} has no attribute {name!r}")
    from manta import _names
    raise AttributeError(_names.absent(front, name, known))

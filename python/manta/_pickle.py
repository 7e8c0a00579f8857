# SPDX-License-Identifier: Apache-2.0
"""Functions and values on their way to workers: by value what is of __main__ or a notebook, by name
what a module has."""

from __future__ import annotations

import functools
import inspect
import io
import sys
from typing import Any


def dumps(o: Any, parts: dict[str, Any]) -> bytes:
    """The pickle of `o`; where that fails, a TypeError that names what stands in the way. parts:
    what `o` is made of, by the names that the user knows."""
    import cloudpickle
    try:
        pickled: bytes = cloudpickle.dumps(o)
        return pickled
    except Exception as e:
        for name, part in parts.items():
            if not _is_fine(part):
                raise TypeError(_blame(part, name, e)) from e
        raise


def _is_fine(o: Any) -> bool:
    import cloudpickle
    try:
        cloudpickle.dumps(o)
    except Exception:
        return False
    return True


def _variables(function: Any) -> dict[str, Any]:
    """What a function takes from around it."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    try:
        found = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return {}
    return {**found.globals, **found.nonlocals}


def _blame(o: Any, name: str, why: Exception) -> str:
    if callable(o):
        for variable, value in _variables(o).items():
            if not _is_fine(value):
                return (f"{name} cannot be sent to the workers: it uses the variable {variable!r}, "
                        f"a {type(value).__name__} ({why})\n"
                        f"hint: make it inside of the function")
    if isinstance(o, dict):
        for key, value in o.items():
            if not _is_fine(value):
                return (f"{name} cannot be sent to the workers: its entry {key!r} is a "
                        f"{type(value).__name__} ({why})")
    return f"{name} cannot be sent to the workers: {why}"


# --- from workers ---------------------------------------------------------------------------------


def dumps_unwrapped(o: Any) -> bytes:
    """The pickle of `o`, with models in DistributedDataParallel as the models alone: where it goes
    there is no process group."""
    out = io.BytesIO()
    dump_unwrapped(o, out)
    return out.getvalue()


def dump_unwrapped(o: Any, file: Any) -> None:
    """The same into a file, or what has a method write."""
    _unwrapping()(file).dump(o)


@functools.cache
def _unwrapping() -> type[Any]:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, o: Any) -> Any:
            parallel = sys.modules.get("torch.nn.parallel")
            if parallel is not None and isinstance(o, parallel.DistributedDataParallel):
                return _itself, (o.module,)
            return super().reducer_override(o)

    return Pickler


def _itself(o: Any) -> Any:
    return o

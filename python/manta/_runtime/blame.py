# SPDX-License-Identifier: Apache-2.0
"""What cannot be sent to a worker, named by the way from the function to it:

    train -> global 'loader' -> attribute 'lock': cannot pickle '_thread.lock' object

The job is pickled once more by pickle's own Python code, which shows what is inside of what."""

from __future__ import annotations

import functools
import io
import pickle
from types import FunctionType, MethodType
from typing import Any, Iterator

import cloudpickle

from manta._runtime import main, travel

STEPS = 12  # of a way that is told; the middle of a longer one is left out
HINT = "hint: make it inside of the function, or pass what it is made of"


def explain(o: Any, parts: dict[str, Any], error: Exception) -> str:
    tracer = _Tracer()
    try:
        tracer.dump(o)
    except Exception as e:
        error = e
    steps = _steps(tracer.stack, parts)
    if len(steps) > STEPS:
        steps[STEPS // 2:-STEPS // 2] = ["…"]
    way = " -> ".join(steps)
    name = steps[0] if steps else "what the run needs"
    return f"{name} cannot be sent to the workers:\n  {way or name}: {error}\n{HINT}"


class _Tracer(travel.Rules, pickle._Pickler):
    """Keeps the objects between the top and the one that fails."""

    dispatch_table = cloudpickle.Pickler.dispatch_table
    _dynamic_function_reduce = cloudpickle.Pickler._dynamic_function_reduce
    _function_getnewargs = cloudpickle.Pickler._function_getnewargs
    _function_reduce = cloudpickle.Pickler._function_reduce

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), cloudpickle.DEFAULT_PROTOCOL)
        self.globals_ref: dict[int, Any] = {}
        self.stack: list[Any] = []
        self.prepare()

    def save(self, o: Any, save_persistent_id: bool = True) -> None:
        self.stack.append(o)
        super().save(o, save_persistent_id)  # type: ignore[misc]
        self.stack.pop()  # not after a failure: what is left is the way to it

    def reducer_override(self, o: Any) -> Any:
        reduced = self.reduced(o)
        return cloudpickle.Pickler.reducer_override(self, o) if reduced is None else reduced


def _steps(stack: list[Any], parts: dict[str, Any]) -> list[str]:
    """In words: the part that the user knows, then each object by its place in the one before.
    What only pickle has made (tuples of state) has no place, and is passed over."""
    steps: list[str] = []
    here: Any = None
    for o in stack:
        if not steps:
            step = next((name for name, part in parts.items() if part is o), None)
        else:
            step = next((words for words, inside in _inside(here) if inside is o), None)
        if step is not None:
            steps.append(step)
            here = o
    if steps and here is not stack[-1] and not isinstance(stack[-1], (tuple, dict)):
        steps.append(f"a {type(stack[-1]).__name__}")
    return steps


def _inside(o: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, with the words for where."""
    if isinstance(o, dict):
        yield from ((f"entry {k!r}", v) for k, v in o.items())
        yield from ((f"key {k!r}", k) for k in o)
    elif isinstance(o, (list, tuple, set, frozenset)):
        yield from ((f"item {i}", v) for i, v in enumerate(o))
    elif isinstance(o, FunctionType):
        yield from _inside_function(o)
    elif isinstance(o, MethodType):
        yield f"the {type(o.__self__).__name__} that it is a method of", o.__self__
        yield "its function", o.__func__
    elif isinstance(o, functools.partial):
        yield "its function", o.func
        yield from ((f"argument {i}", v) for i, v in enumerate(o.args))
        yield from ((f"argument {k!r}", v) for k, v in o.keywords.items())
    yield from _inside_instance(o)


def _inside_function(f: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        yield from ((f"variable {name!r}", v) for v in main.contents(cell))
    names = cloudpickle.cloudpickle._extract_code_globals(f.__code__)
    yield from ((f"global {n!r}", f.__globals__[n]) for n in names if n in f.__globals__)
    yield from ((f"default {i} of its arguments", v) for i, v in enumerate(f.__defaults__ or ()))
    yield from ((f"default of {k!r}", v) for k, v in (f.__kwdefaults__ or {}).items())


def _inside_instance(o: Any) -> Iterator[tuple[str, Any]]:
    try:
        held = dict(object.__getattribute__(o, "__dict__"))
    except (AttributeError, TypeError):
        held = {}
    yield from ((f"attribute {k!r}", v) for k, v in held.items())
    for cls in type(o).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if name in cls.__dict__ and hasattr(cls.__dict__[name], "__get__"):
                try:
                    yield f"attribute {name!r}", cls.__dict__[name].__get__(o, type(o))
                except Exception:
                    pass
    if not isinstance(o, type):
        yield f"its class {type(o).__name__}", type(o)

# SPDX-License-Identifier: Apache-2.0
"""The main script in a worker: the module `__main__` with the driver's definitions, without running
the script again.

(1) Functions of the main script have the namespace of the worker's `__main__` as their globals; a
    class or function that the train function reaches is bound there under the driver's names.
(2) Definitions that it does not reach come along one by one, each by itself. They are defined right
    after the job if what they need is imported already, else when somebody asks `__main__` for one:
    a worker never imports a module that nobody uses.
(3) `__file__` and `__spec__` are the driver's, so that processes which the user's code spawns run
    the script as `__mp_main__`, as under plain Python.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import io
import os
import pickle
import sys
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Callable, Iterator

from manta._pickled import module

NAMES = ("__main__", "__mp_main__")  # of the main module: the second in what was spawned

Identity = dict[str, Any]


# --- in the driver --------------------------------------------------------------------------------


def describe() -> Identity:
    """What makes a module of the worker the main one of this process."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    process = sys.modules.get("multiprocessing.process")
    return {"file": getattr(main, "__file__", None), "doc": getattr(main, "__doc__", None),
            "package": getattr(main, "__package__", None),
            "spec": None if spec is None else (spec.name, spec.origin),
            "spawned": sys.modules.get("__mp_main__") is main,
            "directory": getattr(process, "ORIGINAL_DIR", None) or _directory()}


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def check_not_importing() -> None:
    """A spawned process runs the script's top level before its work: a trainer made there would
    start workers from every one of them."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise RuntimeError(
            "a Trainer was made while a spawned process was importing the main script\n"
            "hint: the spawn and forkserver start methods of multiprocessing run the script's top "
            "level again in every new process; put what only the first one may do below\n"
            "    if __name__ == \"__main__\":")


# --- in a worker ----------------------------------------------------------------------------------


class Main(ModuleType):
    """`__main__` of a worker: finds what was not defined at once when it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name in _rest:
            return _define(name, eager=False)
        raise AttributeError(f"module '__main__' has no attribute {name!r}")


shipped: dict[str, Any] = {}  # the driver's definitions that are here, by their names in `__main__`
_rest: dict[str, bytes] = {}  # those that are not defined yet


def install(identity: Identity, rest: dict[str, bytes]) -> None:
    """Before a job is read. A process that serves several keeps its module."""
    main = sys.modules["__main__"]
    if not isinstance(main, Main):
        _keep.append(main)
        main = Main("__main__")
        sys.modules["__main__"] = main
    if identity["spawned"]:
        sys.modules["__mp_main__"] = main
    _rest.clear()
    _rest.update(rest)
    _take_identity(vars(main), identity)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and identity["directory"]:
        process.ORIGINAL_DIR = identity["directory"]  # type: ignore[attr-defined]


_keep: list[ModuleType] = []  # the interpreter's own main module, whose code is still running


def _take_identity(space: dict[str, Any], identity: Identity) -> None:
    spec = identity["spec"]
    space.update(__doc__=identity["doc"], __package__=identity["package"], __loader__=None,
                 __spec__=spec and importlib.machinery.ModuleSpec(spec[0], None, origin=spec[1]),
                 __builtins__=builtins)
    space.pop("__file__", None)
    if identity["file"] is not None:
        space["__file__"] = identity["file"]


def namespace() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


def module_namespace(name: str) -> dict[str, Any]:
    found: dict[str, Any] = vars(module(name))
    return found


def define(o: Any, state: tuple[tuple[str, ...], Callable[[Any, Any], Any], Any]) -> None:
    """The last step of a definition: fills it in, and binds its names."""
    names, fill, rest = state
    fill(o, rest)
    if any(o is cls for cls in _untold):
        _tell_bases(o)
    for name in names:
        namespace()[name] = shipped[name] = o
        _rest.pop(name, None)


def define_rest() -> None:
    """After a job is read."""
    for name in list(_rest):
        try:
            if name in _rest:
                _define(name, eager=True)
        except Exception:  # later, if at all: who asks for it sees why
            pass


class _Later(Exception):
    """It needs a module that is not imported."""


_loading: set[str] = set()


def _define(name: str, eager: bool) -> Any:
    if name in _loading:
        raise pickle.UnpicklingError(f"the definition of {name} needs itself")
    _loading.add(name)
    try:
        _Reader(_rest[name], eager).load()
    finally:
        _loading.discard(name)
    return namespace()[name]


class _Reader(pickle.Unpickler):
    """Reads one definition; others of `__main__` and modules are in it by name."""

    def __init__(self, data: bytes, eager: bool):
        super().__init__(io.BytesIO(data))
        self.eager = eager

    def find_class(self, where: str, name: str) -> Any:
        self._check(where)
        return super().find_class(where, name)

    def persistent_load(self, pid: tuple[str, str]) -> Any:
        kind, name = pid
        if kind == "main":
            found = namespace()
            return found[name] if name in found else _define(name, self.eager)
        self._check(name)
        return module(name)

    def _check(self, name: str) -> None:
        if self.eager and name not in sys.modules:
            raise _Later(name)


def name_in_driver(o: Any) -> str | None:
    """The name in `__main__` by which the driver has the same definition, or None."""
    name = getattr(o, "__qualname__", None)
    if not isinstance(name, str) or getattr(o, "__module__", None) not in NAMES:
        return None
    top, *inner = name.split(".")
    found = shipped.get(top)
    for part in inner:
        found = getattr(found, part, None)
    return name if found is o else None


# --- classes --------------------------------------------------------------------------------------


def make_class(meta: type, name: str, bases: tuple[type, ...], space: dict[str, Any],
               tracker: Any) -> Any:
    """An empty class, to be filled in. What the script's own metaclasses and __init_subclass__ did
    is in the state that follows; those of other modules are called, as an import would do, unless
    they want what is not there yet."""
    from cloudpickle.cloudpickle import _lookup_class_or_track
    outer = next(m for m in meta.__mro__ if m.__module__ not in NAMES)
    try:
        with _hushed(bases, lambda where: where in NAMES):
            made = _empty_class(outer, meta, name, bases, space)
    except Exception:
        with _hushed(bases, lambda where: where not in ("builtins", "typing")):
            made = type.__new__(meta, name, bases, dict(space))
        _untold.append(made)
    return _lookup_class_or_track(tracker, made)


_untold: list[type] = []  # classes whose bases have not heard of them


def _empty_class(outer: Any, meta: Any, name: str, bases: tuple[type, ...],
                 space: dict[str, Any]) -> type:
    prepared = outer.__prepare__(name, bases)
    prepared.update(space)
    if outer is meta:
        made: type = meta(name, bases, prepared)
    else:
        made = outer.__new__(meta, name, bases, prepared)
        outer.__init__(made, name, bases, prepared)
    return made


@contextlib.contextmanager
def _hushed(bases: tuple[type, ...], chosen: Callable[[str], bool]) -> Iterator[None]:
    """Meanwhile no base in the chosen modules hears of a new class."""
    before = {b: vars(b)["__init_subclass__"] for base in bases for b in base.__mro__
              if "__init_subclass__" in vars(b) and chosen(b.__module__)}
    for b in before:
        type.__setattr__(b, "__init_subclass__", classmethod(lambda cls, **keywords: None))
    try:
        yield
    finally:
        for b, method in before.items():
            type.__setattr__(b, "__init_subclass__", method)


def _tell_bases(cls: type) -> None:
    _untold.remove(cls)
    try:
        super(cls, cls).__init_subclass__()  # type: ignore[arg-type]
    except Exception:  # it wants keywords that nobody has kept
        pass


# --- functions ------------------------------------------------------------------------------------


def make_function(code: CodeType, space: dict[str, Any], name: str,
                  closure: tuple[CellType, ...] | None) -> FunctionType:
    return FunctionType(code, space, name, None, closure)


def fill_function(f: FunctionType, state: tuple[Any, ...]) -> None:
    attributes, slots, taken, _ = state  # the last are modules, imported by now
    vars(f).update(attributes)
    for name, value in slots.items():
        setattr(f, name, value)
    f.__globals__.update(taken)


def contents(cell: CellType) -> Iterator[Any]:
    """Of a cell, if it has been filled."""
    try:
        yield cell.cell_contents
    except ValueError:
        pass


def fill_cell(cell: CellType, held: list[Any]) -> None:
    for o in held:
        cell.cell_contents = o


# --- what pickle has no words for -----------------------------------------------------------------


def cached(maxsize: int | None, typed: bool, make: Callable[..., Any],
           args: tuple[Any, ...]) -> Any:
    """A function in functools.lru_cache, both still empty."""
    import functools
    return functools.lru_cache(maxsize, typed)(make(*args))


def fill_cached(o: Any, state: tuple[Callable[[Any, Any], Any], Any, dict[str, Any]]) -> None:
    import functools
    fill, rest, attributes = state
    function: FunctionType = o.__wrapped__
    fill(function, rest)
    functools.update_wrapper(o, function)
    vars(o).update(attributes)


def cached_property(function: Any, name: str | None, doc: str | None) -> Any:
    import functools
    made: functools.cached_property[Any] = functools.cached_property(function)
    made.attrname, made.__doc__ = name, doc
    return made


def new_type(name: str, supertype: Any, where: str, qualname: str) -> Any:
    import typing
    kind: Any = typing.NewType
    made = kind(name, supertype)
    made.__module__, made.__qualname__ = where, qualname
    return made


def leave_alone(o: Any, state: Any) -> None:
    """What needs no filling in."""

# SPDX-License-Identifier: Apache-2.0
"""Picklers: from the driver to workers, and back. Definitions of the main script go by value with
the namespace of `__main__` for their globals, and come back by name; modules go by name."""

from __future__ import annotations

import functools
import io
import pickle
import sys
import typing
import weakref
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Callable, Iterator

import cloudpickle
from cloudpickle.cloudpickle import (_dynamic_class_reduce, _extract_code_globals,
                                     _make_skeleton_class)

from manta import _frameworks, _pickled
from manta._runtime import main, raised

_SLOTS = ("__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__",
          "__annotations__", "__type_params__")
_LRU = type(functools.lru_cache(lambda: None))
PLAIN = (type(None), bool, int, float, complex, str, bytes)
SMALL_ITEMS, SMALL_BYTES = 1000, 1 << 16  # of a value that goes with definitions nobody reached
REST_BYTES = 1 << 20  # of such a definition


class _Namespace:
    """Stands for the globals of a function: those of the worker's `__main__`, or of a module."""

    def __init__(self, module: str | None = None):
        self.module = module

    def __reduce__(self) -> Any:
        if self.module is None:
            return main.namespace, ()
        return main.module_namespace, (self.module,)


class Rules:
    """What differs from cloudpickle on the way to a worker; for a pickler in C or in Python."""

    def prepare(self) -> None:
        self.main: dict[str, Any] = vars(sys.modules["__main__"])
        self.names: dict[int, tuple[str, ...]] = {}
        for name, o in list(self.main.items()):
            if is_definition(o, self.main):
                self.names[id(o)] = (*self.names.get(id(o), ()), name)
        self.met: set[int] = set()  # definitions of `__main__` that were pickled
        self.spaces: dict[str | None, _Namespace] = {}
        self.modules = {id(m): name for name, m in list(sys.modules.items())
                        if type(m) is not ModuleType}

    def reduced(self, o: Any) -> Any:
        """As a reducer_override; None: cloudpickle knows."""
        kind = type(o)
        if kind is FunctionType:
            if o.__globals__ is self.main or (o.__module__ in main.NAMES and _space_name(o)):
                return self._bound(o, self._function(o))
        elif issubclass(kind, type):
            if getattr(o, "__module__", None) in main.NAMES:
                return self._bound(o, self._class(o))
        elif kind is CellType:
            return CellType, (), list(main.contents(o)), None, None, main.fill_cell
        elif id(o) in self.modules or isinstance(o, ModuleType):
            if name := self._module_name(o):
                return _pickled.module, (name,)
        elif kind is _LRU:
            if not is_importable(o):
                return self._bound(o, self._cached(o))
        else:
            return _reduce_special(o)
        return None

    def _bound(self, o: Any, reduced: Any) -> Any:
        """The same, and what was made is bound to the names it has in `__main__`."""
        names = self.names.get(id(o))
        if names is None:
            return reduced
        self.met.add(id(o))
        make, args, state, _, _, fill = reduced
        return make, args, (names, fill, state), None, None, main.define

    def _class(self, o: Any) -> Any:
        make, args, *rest = _dynamic_class_reduce(o)
        if make is not _make_skeleton_class:  # an enum
            return (make, args, *rest)
        meta, name, _, space, tracker, _ = args
        space = {**space, "__qualname__": o.__qualname__}
        space |= {k: vars(o)[k] for k in ("__slots__", "__orig_bases__") if k in vars(o)}
        return (main.make_class, (meta, name, o.__bases__, space, tracker), *rest)

    def _function(self, f: Any) -> Any:
        """By value, cells and all. Its globals are the worker's: of `__main__` it brings what it
        names; a decorator's function that took a name of ours has its own module's."""
        names = {} if f.__globals__ is not self.main else _extract_code_globals(f.__code__)
        taken = {n: f.__globals__[n] for n in names if n in f.__globals__}
        seen = [*taken.values(), *_held(f)]
        state = (vars(f), dict(_slots(f)), self.chosen(taken), list(_submodules(seen, f.__code__)))
        args = (f.__code__, self._space(f), f.__name__, f.__closure__)
        return main.make_function, args, state, None, None, main.fill_function

    def _space(self, f: Any) -> Any:
        name = None if f.__globals__ is self.main else _space_name(f)
        return self.spaces.setdefault(name, _Namespace(name))

    def chosen(self, taken: dict[str, Any]) -> dict[str, Any]:
        """Which globals of `__main__` a function brings along."""
        return taken

    def _cached(self, o: Any) -> Any:
        limits = o.cache_parameters()
        f = o.__wrapped__
        make, args, state, _, _, fill = (
            self._function(f) if type(f) is FunctionType
            else (_pickled.itself, (f,), None, None, None, main.leave_alone))
        attributes = {k: v for k, v in vars(o).items() if k != "__wrapped__"}
        return (main.cached, (limits["maxsize"], limits["typed"], make, args),
                (fill, state, attributes), None, None, main.fill_cached)

    def _module_name(self, o: Any) -> str | None:
        name = self.modules.get(id(o)) or _own(o, "__name__")
        if not isinstance(name, str) or name in cloudpickle.list_registry_pickle_by_value():
            return None
        if sys.modules.get(name) is o or _is_reached(name, o):
            return name
        return next((n for n, m in list(sys.modules.items()) if m is o), None)


def is_definition(o: Any, space: dict[str, Any]) -> bool:
    """Whether the main script has defined it: a function or a class."""
    if isinstance(o, (type, _LRU)):
        return getattr(o, "__module__", None) in main.NAMES
    return type(o) is FunctionType and (o.__globals__ is space or o.__module__ in main.NAMES)


def is_importable(o: Any) -> bool:
    """Whether a module other than the main one has it under its own name."""
    where, name = getattr(o, "__module__", None), getattr(o, "__qualname__", None)
    found: Any = None if where in main.NAMES else sys.modules.get(where or "")
    for part in (name or "").split("."):
        found = getattr(found, part, None)
    return found is o


def _slots(f: Any) -> Iterator[tuple[str, Any]]:
    for name in _SLOTS:
        try:
            yield name, getattr(f, name)
        except Exception:  # this Python has none, or an annotation cannot be evaluated here
            pass


def _held(f: Any) -> Iterator[Any]:
    for cell in f.__closure__ or ():
        yield from main.contents(cell)


def _submodules(held: list[Any], code: CodeType) -> Iterator[ModuleType]:
    """Modules that a function reaches as attributes of those it has (torch.nn.functional), which
    are to be imported where it is called."""
    names = {n for c in _nested(code) for n in c.co_names}
    found = [name for m in held if isinstance(m, ModuleType) and (name := _own(m, "__name__"))
             and _own(m, "__path__") is not None]
    for above in found:
        for name in names:
            module = sys.modules.get(f"{above}.{name}")
            if module is not None:
                found.append(f"{above}.{name}")
                yield module


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _nested(const)


def _space_name(f: Any) -> str | None:
    name = f.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return name if module is not None and vars(module) is f.__globals__ else None


def _own(module: Any, name: str) -> Any:
    """An attribute, without waking a lazy module."""
    return object.__getattribute__(module, "__dict__").get(name)


def _is_reached(name: str, o: Any) -> bool:
    """Whether a dotted name leads to it from a module that is imported."""
    top, *rest = name.split(".")
    found: Any = sys.modules.get(top)
    try:
        for part in rest:
            found = getattr(found, part)
    except Exception:
        return False
    return found is o


def _reduce_special(o: Any) -> Any:
    if isinstance(o, functools.cached_property):  # has a lock in Python 3.11
        return main.cached_property, (o.func, o.attrname, o.__doc__)
    if isinstance(o, typing.NewType) and not is_importable(o):
        return main.new_type, (o.__name__, o.__supertype__, o.__module__,
                                getattr(o, "__qualname__"))
    if type(o) in (weakref.WeakKeyDictionary, weakref.WeakValueDictionary):
        return type(o), (dict(o),)
    return None


class Outward(Rules, cloudpickle.Pickler):  # type: ignore[misc]
    """To a worker, with all that is reached."""

    def __init__(self, file: Any, apart: Callable[[pickle.PickleBuffer], bool] | None = None):
        super().__init__(file, buffer_callback=apart)
        self.prepare()

    def reducer_override(self, o: Any) -> Any:
        reduced = self.reduced(o)
        return super().reducer_override(o) if reduced is None else reduced


class _Alone(Outward):
    """One definition that was not reached. Others of `__main__` and modules are named; of values
    only small ones come along: nobody may need any of it, and the run does not pay for it."""

    root = 0

    def start(self, o: Any, shared: Outward) -> None:
        self.root, self.names, self.modules = id(o), shared.names, shared.modules

    def prepare(self) -> None:
        self.main = vars(sys.modules["__main__"])
        self.met, self.spaces = set(), {}

    def persistent_id(self, o: Any) -> Any:
        if id(o) in self.names and id(o) != self.root:
            return "main", self.names[id(o)][0]
        if (isinstance(o, ModuleType) or id(o) in self.modules) and (name := self._module_name(o)):
            return "module", name
        return None

    def chosen(self, taken: dict[str, Any]) -> dict[str, Any]:
        """Other definitions are there by themselves."""
        return {k: v for k, v in taken.items() if id(v) not in self.names and _is_small(v)}


def _is_small(o: Any, depth: int = 3) -> bool:
    import argparse
    import logging
    import pathlib
    if type(o) in PLAIN:
        return not isinstance(o, (str, bytes)) or len(o) <= SMALL_BYTES
    if type(o) in (list, tuple, set, frozenset, dict):
        return depth > 0 and len(o) <= SMALL_ITEMS and all(
            _is_small(v, depth - 1) for v in (o.values() if type(o) is dict else o))
    if type(o) is argparse.Namespace:
        return _is_small(vars(o), depth)
    return isinstance(o, (ModuleType, FunctionType, type, pathlib.PurePath, logging.Logger, _LRU))


class _Limited(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > REST_BYTES:
            raise pickle.PicklingError("too large for a definition")
        return super().write(data)


def rest_of(reached: Outward) -> dict[str, bytes]:
    """The definitions of `__main__` that were not reached and can travel, by name."""
    return dict(_rest_of(reached))


def _rest_of(reached: Outward) -> Iterator[tuple[str, bytes]]:
    for name, o in list(reached.main.items()):
        if id(o) in reached.names and id(o) not in reached.met:
            file = _Limited()
            try:
                pickler = _Alone(file)
                pickler.start(o, reached)
                pickler.dump(o)
            except Exception:
                continue
            yield name, file.getvalue()


class Homeward(cloudpickle.Pickler):  # type: ignore[misc]
    """From a worker: the driver's own definitions by name, so that it gets its own classes."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.frameworks = _frameworks.imported()

    def reducer_override(self, o: Any) -> Any:
        if name := name_at_home(o):
            return name
        if isinstance(o, ModuleType) and sys.modules.get(o.__name__) is o:
            return _pickled.module, (o.__name__,)
        if isinstance(o, BaseException) and (reduced := raised.reduce(o)):
            return reduced
        for framework in self.frameworks:
            if (bare := framework.without_group(o)) is not o:
                return _pickled.itself, (bare,)
        return super().reducer_override(o)


def name_at_home(o: Any) -> str | None:
    """By what name of `__main__` the driver, and every worker, has the same definition."""
    kind = type(o)
    if kind is FunctionType or kind is _LRU or issubclass(kind, type):
        return main.name_in_driver(o)
    return None


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """For what a worker writes and any of the run's processes may read. With dump(), what
    torch.save takes for a pickle_module."""

    def reducer_override(self, o: Any) -> Any:
        return name_at_home(o) or super().reducer_override(o)


def dump(o: Any, file: Any) -> None:
    Pickler(file).dump(o)

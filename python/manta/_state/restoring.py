# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint back to the object."""

from __future__ import annotations

import io
import os
import pickle
from typing import TYPE_CHECKING, Any, Callable

from manta import _frameworks, _manta
from manta._state.entry import FORMAT, STREAM, TYPES, Source

if TYPE_CHECKING:
    from manta._frameworks.tensors import Reader

# Where earlier versions had what stands in a pickle for a tensor.
_EARLIER = {("manta._state.packing", "tensor"), ("manta._state.pieces", "piece")}


class _Readers:
    """Of a checkpoint: one for each framework that has tensors in it."""

    models = True

    def __init__(self, device: Any, whole: bool, lazy: bool):
        self.device, self.whole, self.lazy = device, whole, lazy
        self.known: dict[str, Reader] = {}

    def of(self, word: str) -> Reader | None:
        """Who knows the function `word` of manta._pickled; None: it is what it is."""
        if (framework := _frameworks.owner_of(word)) is None:
            return None
        if framework.name not in self.known:
            tensors = framework.tensors()
            assert tensors is not None
            self.known[framework.name] = (tensors.lazy_reader() if self.lazy else
                                          tensors.reader(self.device, self.whole))
        return self.known[framework.name]

    def check(self) -> None:
        for reader in self.known.values():
            reader.check()


# What a pickle may name that runs no code of its writer's choice: plain values and arrays. What
# stands for tensors is in manta._pickled.
_DATA = {("builtins", name) for name in ("bytearray", "complex", "frozenset", "range", "set",
                                         "slice")}
_DATA |= {("collections", "OrderedDict"), ("datetime", "datetime"), ("datetime", "timedelta")}
_DATA |= {(f"numpy{core}.{module}", name) for core in (".core", "._core")
          for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"),
                               ("numeric", "_frombuffer"))}
_DATA |= {("numpy", "ndarray"), ("numpy", "dtype"), ("manta._pickled", "itself"),
          ("manta._pickled", "array_as")}


def _no_model(*parts: Any) -> None:
    """In the place of manta._pickled.keras_model, for who looks at something else."""


class _Plain(pickle.Unpickler):
    """For one that nobody has vouched for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _DATA:
            raise PermissionError(f"the checkpoint contains a pickle that names {module}.{name}, "
                                  f"and loading it runs the code that its author put into it; pass "
                                  f"trust=True if it is yours")
        return super().find_class(module, name)


class _Unpickler(_Plain):
    """Of the part of one rank."""

    def __init__(self, file: io.BytesIO, entries: dict[str, Any], rank: int, readers: _Readers,
                 trust: bool):
        names, places, buffers = _Plain(file).load()
        self.trust = trust
        self.source = Source(entries, names, places)
        self.rank = rank
        self.readers = readers
        self.words: dict[str, Callable[..., Any]] = {}
        super().__init__(file, buffers=[entries[names[i]] for i in buffers])

    def find_class(self, module: str, name: str) -> Any:
        if module == "manta._pickled" or (module, name) in _EARLIER:
            if name == "keras_model" and not self.readers.models:
                return _no_model
            if name not in self.words and (reader := self.readers.of(name)):
                self.words |= reader.words(self.rank, self.source)
            if name in self.words:
                return self.words[name]
        if self.trust or any(r.is_plain(module, name) for r in self.readers.known.values()):
            return pickle.Unpickler.find_class(self, module, name)
        return super().find_class(module, name)


def restore(checkpoint: _manta.Checkpoint, trust: bool = True, device: Any = None,
            place: tuple[int, int] | None = None, *, data_only: bool = False,
            lazy: bool = False, models: bool = True) -> Any:
    """The object that a checkpoint holds. Its tensors lie in the checkpoint's own mapping: pages
    are read when they are looked at, and a write changes nobody else's. Those that were on a GPU
    are now in host memory, or on `device` if one is given.

    Of a sharded checkpoint it is the list of all parts, or the part of `place` (rank, world size)
    if there were as many ranks, in which tensors are pieces again; in the list they are whole, the
    same ones in all parts. lazy: for a model that itself knows its pieces, the list in any case,
    in which tensors that ranks have saved pieces of are not put together. A checkpoint of a program
    in C is a dict of its tensors, with its value as "_value". Without `trust` nothing is unpickled:
    that runs whatever its writer put into it; data_only: but for plain values, arrays and tensors,
    which run nothing. models: whether Keras models are made, which all ranks of a strategy do
    together, or None stands for each."""
    rows = checkpoint.tensors()
    value = checkpoint.value()
    parts = value.get("parts") if isinstance(value, dict) else None
    world = value.get("sharded") if isinstance(parts, list) else None
    own = place[0] if place and place[1] == world and not lazy else None
    readers = _Readers(device, whole=world is not None and own is None, lazy=lazy)
    readers.models = models
    if world is None:
        return _restore(rows, value, trust, 0, readers, data_only)
    objects = [_restore(_of_rank(rows, r), value["parts"][r], trust, r, readers,
                        data_only)
               for r in (range(world) if own is None else [own])]
    readers.check()
    return objects if own is None else objects[0]


def _of_rank(rows: list[Any], rank: int) -> list[Any]:
    prefix = f"rank{rank}."
    return [(row[0][len(prefix):], *row[1:]) for row in rows if row[0].startswith(prefix)]


def _restore(rows: list[Any], value: Any, trust: bool, rank: int, readers: _Readers,
             data_only: bool) -> Any:
    if not (isinstance(value, dict) and value.get("format") == FORMAT):
        return {**{name: _array(*rest) for name, *rest in rows}, "_value": value}
    if not trust and not data_only:
        raise PermissionError("the checkpoint contains a pickle, and loading it runs the code that "
                              "its author put into it; pass trust=True if it is yours")
    entries = {name: view for name, _, _, view in rows}
    return _Unpickler(io.BytesIO(entries[STREAM]), entries, rank, readers, trust).load()


def _array(number: int, shape: tuple[int, ...], view: Any) -> Any:
    """A tensor of a C program: as a framework has it, else numpy, else its bytes."""
    wanted = next((name for name, kind in TYPES.items() if kind == _manta.DTYPES[number]))
    for tensors in _frameworks.all_tensors():
        if (made := tensors.array(wanted, shape, view)) is not None:
            return made
    try:
        import numpy
        return numpy.frombuffer(view, dtype=wanted).reshape(shape)
    except (ImportError, TypeError):
        return memoryview(view)


def load_dir(path: str | os.PathLike[str], trust: bool = False, device: Any = None) -> Any:
    """The object in a checkpoint's directory (the one with manifest.json), every byte verified."""
    return restore(_manta.open_checkpoint(os.fspath(path), True), trust, device)


def is_pickled(path: str | os.PathLike[str]) -> bool:
    """Whether what lies there would have to be unpickled."""
    value = _manta.open_checkpoint(os.fspath(path), False).value()
    parts = [value, *(value.get("parts") or [])] if isinstance(value, dict) else []
    return any(isinstance(part, dict) and part.get("format") == FORMAT for part in parts)

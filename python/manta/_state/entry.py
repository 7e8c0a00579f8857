# SPDX-License-Identifier: Apache-2.0
"""The entries of the checkpoint that an object becomes: what they are called, and where the tensors
of the object lie in them."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Iterable, NamedTuple

from manta import _frameworks, _manta

Row = tuple[str, int, tuple[int, ...], int]  # name, type, shape, address
Path = tuple[str, ...]
Form = tuple[int, tuple[int, ...]]  # type, shape

STREAM = "_pickle"
UNNAMED = "_buffer."
FORMAT = "manta.python.1"
MAX_DIMS = 8
MAX_NAME = 1024
MAX_DEPTH = 64  # of dicts and lists that are searched for tensors
SMALL = 256  # a buffer without a name of fewer bytes is not worth an entry
STREAM_UNIT = 1024  # so that the next save of the same state mostly has the same layout

NUMBER = {name: i for i, name in enumerate(_manta.DTYPES)}
TYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
         "float16": "F16", "bfloat16": "BF16", "uint32": "U32", "int32": "I32", "float32": "F32",
         "uint64": "U64", "int64": "I64", "float64": "F64"}
COMPLEX = {"complex32": "F16", "complex64": "F32", "complex128": "F64"}


def typed(kind: str, shape: tuple[int, ...], itemsize: int) -> Form:
    """Type and shape under which an array is an entry; kind: the name that numpy has for its
    type."""
    if kind in COMPLEX:
        kind, shape = COMPLEX[kind], (*shape, 2)
    elif kind in TYPES:
        kind = TYPES[kind]
    else:
        kind, shape = "U8", shape if itemsize == 1 else (*shape, itemsize)
    if len(shape) > MAX_DIMS:
        count = 1
        for n in shape:
            count *= n
        shape = (count,)
    return NUMBER[kind], shape


# --- names ----------------------------------------------------------------------------------------


class _Names:
    """Gives each entry a name of its own: its path, if it has one that can be a name."""

    def __init__(self) -> None:
        self.taken = {STREAM, "__metadata__"}
        self.unnamed = 0

    def take(self, path: Path | None) -> str:
        name = ".".join(path) if path else ""
        if not name or name in self.taken or name.startswith(UNNAMED) or not _possible(name):
            name = f"{UNNAMED}{self.unnamed}"
            self.unnamed += 1
        self.taken.add(name)
        return name


def _possible(name: str) -> bool:
    try:
        return len(name.encode()) <= MAX_NAME and "\0" not in name
    except UnicodeEncodeError:
        return False


# --- entries --------------------------------------------------------------------------------------


class Entry(NamedTuple):
    name: str
    dtype: int
    shape: tuple[int, ...]
    source: Any  # a contiguous tensor, or an object with a buffer
    address: int  # of its memory; 0: on a device, or empty


# Of each tensor: its entry, and as a view of it the offset in bytes and the strides.
Place = tuple[int, int, tuple[int, ...] | None]


class Source:
    """What tensors are made of when a checkpoint is read: its entries by name, their names in the
    order that places has, and the places."""

    def __init__(self, entries: dict[str, Any], names: list[str], places: list[Place]):
        self.entries, self.names, self.places = entries, names, places


class NotWhole(Exception):
    """A tensor that ranks have pieces of, in a state that one rank saves."""


class Packing:
    """What is found on the way through an object. Tensors are their framework's: each has a Packer
    here, which numbers what it sees and at the end places it."""

    def __init__(self, sharded: bool = False) -> None:
        self.sharded = sharded  # each rank saves its part, and may have pieces of tensors
        self.numpy = sys.modules.get("numpy")
        self.names = _Names()
        self.paths: dict[int, tuple[Path, Any]] = {}  # of tensors, by id, and the tensor
        self.arrays: dict[int, tuple[Path, Any]] = {}  # of numpy, by address
        self.places: list[Place] = []
        self.entries: list[Entry] = []
        self.buffers: list[int] = []  # entries of buffers, in the pickle's order
        self.packers = [tensors.packer(self) for tensors in _frameworks.all_tensors()]

    def name_leaves(self, obj: Any) -> None:
        self._name(obj, (), set())

    def _name(self, obj: Any, path: Path, above: set[int]) -> None:
        """Of what is in nested dicts, lists, tuples and models."""
        if any(isinstance(obj, packer.kinds) for packer in self.packers):
            self.paths.setdefault(id(obj), (path, obj))
            return
        if (inside := self._inside(obj)) is None:
            numpy = self.numpy
            if numpy and type(obj) is numpy.ndarray and obj.flags.c_contiguous:
                self.arrays.setdefault(obj.__array_interface__["data"][0], (path, obj))
            return
        if id(obj) in above or len(path) > MAX_DEPTH:
            return
        above.add(id(obj))
        for key, value in inside:
            self._name(value, (*path, str(key)), above)
        above.remove(id(obj))

    def _inside(self, obj: Any) -> Iterable[tuple[Any, Any]] | None:
        if isinstance(obj, dict):
            return obj.items()
        if isinstance(obj, (list, tuple)):
            return enumerate(obj)
        return next((found for packer in self.packers
                     if (found := packer.inside(obj)) is not None), None)

    def path_of(self, tensor: Any) -> Path | None:
        return self.paths.get(id(tensor), (None, None))[0]

    def number(self) -> int:
        """Of one more tensor, whose place is yet to be said."""
        self.places.append((-1, 0, None))
        return len(self.places) - 1

    def add(self, path: Path | None, form: Form, source: Any, address: int) -> int:
        self.entries.append(Entry(self.names.take(path), *form, source, address))
        return len(self.entries) - 1

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """The pickler's question; True: it stays in the pickle."""
        raw = buffer.raw()
        address = _manta.address(raw)
        path, array = self.arrays.get(address, (None, None))
        if array is not None and array.nbytes == raw.nbytes:
            form = typed(array.dtype.name, array.shape, array.itemsize)
        elif raw.nbytes < SMALL:
            return True
        else:
            path, form = None, (NUMBER["U8"], (raw.nbytes,))
        self.buffers.append(self.add(path, form, raw, address))
        return False

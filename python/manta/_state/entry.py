# SPDX-License-Identifier: Apache-2.0
"""The entries of the checkpoint that an object becomes: which tensors there are, what they are
called, and which memory they share."""

from __future__ import annotations

import pickle
import sys
from functools import cache
from typing import Any, NamedTuple

from manta import _manta

Row = tuple[str, int, tuple[int, ...], int]  # name, type, shape, address
Path = tuple[str, ...]

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


def loaded_torch() -> Any:
    """torch, if it is loaded: who has not loaded it has no tensors."""
    return sys.modules.get("torch")


def loaded(module: str, *names: str) -> tuple[type, ...]:
    """Those classes of a module that are there: what nobody has loaded, nobody has objects of."""
    found = (getattr(sys.modules.get(module), name, None) for name in names)
    return tuple(cls for cls in found if isinstance(cls, type))


@cache
def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _span(t: Any) -> int:
    """Elements of memory from the first that a tensor has to its last."""
    return sum((n - 1) * step for n, step in zip(t.shape, t.stride())) + 1 if t.numel() else 0


def typed(kind: str, shape: tuple[int, ...], itemsize: int) -> tuple[int, tuple[int, ...]]:
    """Type and shape under which an array of torch or numpy is an entry."""
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


def form_of(t: Any) -> tuple[int, tuple[int, ...]]:
    return typed(_name_of(t.dtype), tuple(t.shape), t.element_size())


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


class _Seen(NamedTuple):
    """A tensor that the pickler came across, and the memory it lies in."""
    tensor: Any
    name: Path | None
    device: str
    start: int
    end: int
    contiguous: bool


class Entry(NamedTuple):
    name: str
    dtype: int
    shape: tuple[int, ...]
    source: Any  # a contiguous tensor, or an object with a buffer


# Of each tensor: its entry, and as a view of it the offset in bytes and the strides.
Place = tuple[int, int, tuple[int, ...] | None]


class Packing:
    """What is found on the way through an object."""

    def __init__(self) -> None:
        self.torch, self.numpy = loaded_torch(), sys.modules.get("numpy")
        self.names = _Names()
        self.paths: dict[int, tuple[Path, Any]] = {}  # of tensors, by id, and the tensor
        self.arrays: dict[int, tuple[Path, Any]] = {}  # of numpy, by address
        self.seen: list[_Seen] = []
        self.places: list[Place] = []
        self.entries: list[Entry] = []
        self.buffers: list[int] = []  # entries of buffers, in the pickle's order
        self.devices: dict[Any, str] = {}  # that there are tensors on
        self.pieces = 0  # DTensors among them
        self.meshes: dict[int, tuple[Any, Any]] = {}  # theirs, by id: the mesh, and what is saved

    def name_leaves(self, obj: Any) -> None:
        self._name(obj, (), set())

    def _name(self, obj: Any, path: Path, above: set[int]) -> None:
        """Of what is in nested dicts, lists, tuples and modules."""
        torch, numpy = self.torch, self.numpy
        inside: Any
        if torch and isinstance(obj, torch.Tensor):
            self.paths.setdefault(id(obj), (path, obj))
            return
        if isinstance(obj, dict):
            inside = obj.items()
        elif isinstance(obj, (list, tuple)):
            inside = enumerate(obj)
        elif torch and isinstance(obj, torch.nn.Module):
            inside = obj.state_dict(keep_vars=True).items()
        else:
            if numpy and type(obj) is numpy.ndarray and obj.flags.c_contiguous:
                self.arrays.setdefault(obj.__array_interface__["data"][0], (path, obj))
            return
        if id(obj) in above or len(path) > MAX_DEPTH:
            return
        above.add(id(obj))
        for key, value in inside:
            self._name(value, (*path, str(key)), above)
        above.remove(id(obj))

    def add(self, name: Path | None, form: tuple[int, tuple[int, ...]], source: Any) -> int:
        self.entries.append(Entry(self.names.take(name), *form, source))
        return len(self.entries) - 1

    def add_tensor(self, name: Path | None, t: Any) -> int:
        """t is contiguous."""
        return self.add(name, form_of(t), t)

    # The pickler's two questions.

    def see(self, t: Any) -> int:
        """Notes a plain tensor and gives its number."""
        name, _ = self.paths.get(id(t), (None, None))
        if t.requires_grad:
            t = t.detach()
        if t.is_conj() or t.is_neg():
            t = t.resolve_conj().resolve_neg()
        start, device, contiguous = t.data_ptr(), t.device, t.is_contiguous()
        if device not in self.devices:
            self.devices[device] = str(device)
        bytes_ = t.nbytes if contiguous else _span(t) * t.element_size()
        self.seen.append(_Seen(t, name, self.devices[device], start, start + bytes_, contiguous))
        return len(self.seen) - 1

    def take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True: it stays in the pickle."""
        raw = buffer.raw()
        address = _manta.address(raw)
        path, array = self.arrays.get(address, (None, None))
        if array is not None and array.nbytes == raw.nbytes:
            form = typed(array.dtype.name, array.shape, array.itemsize)
        elif raw.nbytes < SMALL:
            return True
        else:
            path, form = None, (NUMBER["U8"], (raw.nbytes,))
        self.buffers.append(self.add(path, form, raw))
        return False

    # When all are known.

    def place_all(self) -> None:
        """In the order in which they were seen: the next save has the same one."""
        self.places = [(-1, 0, None)] * len(self.seen)
        for heap in sorted(self._heaps()):
            self._place(heap)

    def _heaps(self) -> list[list[int]]:
        """Tensors together whose memory overlaps."""
        order = sorted((one.device, one.start, -one.end, i) for i, one in enumerate(self.seen))
        heaps: list[list[int]] = []
        last, last_end = "", 0
        for device, start, minus_end, i in order:
            if heaps and device == last and start < min(last_end, -minus_end):
                heaps[-1].append(i)
                last_end = max(last_end, -minus_end)
            else:
                heaps.append([i])
                last, last_end = device, -minus_end
        return [sorted(heap) for heap in heaps]

    def _place(self, heap: list[int]) -> None:
        if len(heap) == 1:
            self._place_one(heap[0])
            return
        start = min(self.seen[i].start for i in heap)
        end = max(self.seen[i].end for i in heap)
        for i in heap:
            one = self.seen[i]
            if (one.start, one.end) == (start, end) and one.contiguous:
                self._place_views(heap, start, self.add_tensor(one.name, one.tensor))
                return
        raw = self._raw(heap, start, end)
        if raw is not None:
            self._place_views(heap, start, self.add_tensor(None, raw))
            return
        for i in heap:  # storages over the same memory that know nothing of each other
            self._place_one(i)

    def _place_one(self, i: int) -> None:
        one = self.seen[i]
        t = one.tensor
        if not one.contiguous:
            expanded = one.end - one.start < t.numel() * t.element_size()
            raw = self._raw([i], one.start, one.end) if expanded else None
            if raw is not None:  # written as little as it is
                self._place_views([i], one.start, self.add_tensor(None, raw))
                return
            t = t.contiguous()
        self.places[i] = (self.add_tensor(one.name, t), 0, None)

    def _place_views(self, heap: list[int], start: int, entry: int) -> None:
        for i in heap:
            one = self.seen[i]
            stride = None if one.contiguous else tuple(one.tensor.stride())
            self.places[i] = (entry, one.start - start, stride)

    def _raw(self, heap: list[int], start: int, end: int) -> Any:
        """The memory from start to end as a tensor, if it lies in one storage."""
        torch = loaded_torch()
        t = self.seen[heap[0]].tensor
        storage = t.untyped_storage()
        at = start - storage.data_ptr()
        if at < 0 or end - storage.data_ptr() > storage.nbytes():
            return None
        same = all(self.seen[i].tensor.dtype == t.dtype for i in heap)
        dtype = t.dtype if same else torch.uint8
        size = t.element_size() if same else 1
        raw = torch.empty(0, dtype=dtype, device=t.device)
        return raw.set_(storage, at // size, ((end - start) // size,), (1,))

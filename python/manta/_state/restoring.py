# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint back to the object."""

from __future__ import annotations

import io
import os
import pickle
from typing import Any, Callable

from manta import _manta
from manta._state.entry import FORMAT, STREAM, TYPES, loaded_torch
from manta._state.pieces import Mesh, OnMesh, Piece, Whole

Join = Callable[[Piece], Any]  # what a piece of a tensor becomes


class _Source:
    """The entries of a checkpoint, each as one storage, made when it is asked for."""

    def __init__(self, entries: dict[str, Any], device: Any):
        self.entries = entries  # name -> View
        self.device = device
        self.storages: dict[tuple[str, bool], Any] = {}

    def storage(self, name: str, moved: bool) -> Any:
        import torch
        if (name, moved) not in self.storages:
            bytes_ = torch.frombuffer(self.entries[name], dtype=torch.uint8)
            if moved:
                bytes_ = bytes_.to(self.device)
            self.storages[name, moved] = bytes_.untyped_storage()
        return self.storages[name, moved]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, source: _Source, table: Any, join: Join):
        names, self.places, buffers = table
        self.join = join
        self.names = names
        self.source = source
        super().__init__(file, buffers=[source.entries[names[i]] for i in buffers])

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("manta._state.packing", "tensor"):
            return self.tensor
        if (module, name) == ("manta._state.pieces", "piece"):
            return self.piece
        return super().find_class(module, name)

    def piece(self, name: str, local: Any, mesh: tuple[Any, ...], *rest: Any) -> Any:
        return self.join(Piece(name, local, Mesh(*mesh), *rest))

    def tensor(self, number: int, dtype: Any, shape: tuple[int, ...], cls: type,
               requires_grad: bool, away: bool, state: dict[str, Any] | None) -> Any:
        import torch
        moved = away and self.source.device is not None
        t = torch.empty(0, dtype=dtype, device=self.source.device if moved else "cpu")
        entry, offset, stride = self.places[number]
        if 0 in shape:
            t = t.new_empty(shape)
        else:
            storage = self.source.storage(self.names[entry], moved)
            t = _view(t, storage, offset, shape, stride or _contiguous(shape))
        if cls is torch.nn.Parameter:
            t = torch.nn.Parameter(t, requires_grad)
        else:
            t = t if cls is torch.Tensor else t.as_subclass(cls)
            t.requires_grad_(requires_grad)
        if state:
            vars(t).update(state)
        return t


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _view(t: Any, storage: Any, offset: int, shape: tuple[int, ...],
          stride: tuple[int, ...]) -> Any:
    size = t.element_size()
    if offset % size == 0 and storage.data_ptr() % min(size, 8) == 0:
        return t.set_(storage, offset // size, shape, stride)
    # Bytes of a mixture of types that do not lie as this type must: a copy of their own.
    import torch
    span = sum((n - 1) * step for n, step in zip(shape, stride)) + 1
    own = torch.empty(span, dtype=t.dtype, device=t.device)
    raw = torch.empty(0, dtype=torch.uint8, device=t.device)
    own.view(torch.uint8).copy_(raw.set_(storage, offset, (span * size,), (1,)))
    return own.as_strided(shape, stride)


def restore(checkpoint: _manta.Checkpoint, trust: bool = True, device: Any = None,
            place: tuple[int, int] | None = None) -> Any:
    """The object that a checkpoint holds. Its tensors lie in the checkpoint's own mapping: pages
    are read when they are looked at, and a write changes nobody else's. Those that were on a GPU
    are now in host memory, or on `device` if one is given.

    Of a sharded checkpoint it is the list of all parts, or the part of `place` (rank, world size)
    if there were as many ranks, in which DTensors are such again; in the list they are whole
    tensors, the same ones in all parts. A checkpoint of a program in C is a dict of its tensors,
    with its value as "_value". Without `trust` nothing is unpickled: that runs whatever its writer
    put into it."""
    rows = checkpoint.tensors()
    value = checkpoint.value()
    parts = value.get("parts") if isinstance(value, dict) else None
    world = value.get("sharded") if isinstance(parts, list) else None
    if world is None:
        return _restore(rows, value, trust, device, OnMesh())
    if place and place[1] == world:
        rank = place[0]
        return _restore(_of_rank(rows, rank), value["parts"][rank], trust, device, OnMesh())
    whole = Whole()
    objects = [_restore(_of_rank(rows, r), value["parts"][r], trust, device, whole.of_rank(r))
               for r in range(world)]
    whole.check()
    return objects


def _of_rank(rows: list[Any], rank: int) -> list[Any]:
    prefix = f"rank{rank}."
    return [(row[0][len(prefix):], *row[1:]) for row in rows if row[0].startswith(prefix)]


def _restore(rows: list[Any], value: Any, trust: bool, device: Any, join: Join) -> Any:
    if not (isinstance(value, dict) and value.get("format") == FORMAT):
        return {**{name: _array(*rest) for name, *rest in rows}, "_value": value}
    if not trust:
        raise PermissionError("the checkpoint contains a pickle, and loading it runs the code that "
                              "its author put into it; pass trust=True if it is yours")
    entries = {name: view for name, _, _, view in rows}
    file = io.BytesIO(entries[STREAM])
    table = pickle.load(file)
    return _Unpickler(file, _Source(entries, device), table, join).load()


def _array(number: int, shape: tuple[int, ...], view: Any) -> Any:
    """A tensor of a C program: as torch has it, else numpy, else its bytes."""
    wanted = next((name for name, kind in TYPES.items() if kind == _manta.DTYPES[number]))
    if torch := loaded_torch():
        dtype = getattr(torch, wanted)
        empty = 0 in shape
        return torch.empty(shape, dtype=dtype) if empty else torch.frombuffer(
            view, dtype=dtype).view(shape)
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

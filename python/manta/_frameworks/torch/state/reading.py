# SPDX-License-Identifier: Apache-2.0
"""From the entries of a checkpoint back to tensors, which lie in its mapping."""

from __future__ import annotations

from typing import Any, Callable

import torch

from manta._frameworks.tensors import Reader
from manta._frameworks.torch.state.cutting import Lazy
from manta._frameworks.torch.state.pieces import Mesh, OnMesh, Piece, Whole
from manta._state.entry import Source

Join = Callable[[Piece], Any]  # what a piece of a tensor becomes


_PLAIN = {("torch", "Size"), ("torch", "Tensor"), ("torch._tensor", "Tensor"),
          ("torch.nn.parameter", "Parameter")}


class TorchReader(Reader):
    """together: what pieces that come rank by rank become; None: each is this rank's own."""

    def __init__(self, device: Any, together: Whole | Lazy | None):
        self.device = device
        self.on_mesh = OnMesh()
        self.together = together

    def words(self, rank: int, source: Source) -> dict[str, Callable[..., Any]]:
        join = self.together.of_rank(rank) if self.together else self.on_mesh
        part = _Part(source, self.device, join)
        return {"tensor": part.tensor, "piece": part.piece}

    def is_plain(self, module: str, name: str) -> bool:
        return (module, name) in _PLAIN or (
            module == "torch" and isinstance(vars(torch).get(name), torch.dtype))

    def check(self) -> None:
        if self.together:
            self.together.check()


class _Part:
    """What one rank saved. Each of its entries is one storage, made when it is asked for."""

    def __init__(self, source: Source, device: Any, join: Join):
        self.source = source
        self.device = device
        self.join = join
        self.storages: dict[tuple[str, bool], Any] = {}

    def piece(self, name: str, local: Any, mesh: tuple[Any, ...], *rest: Any) -> Any:
        return self.join(Piece(name, local, Mesh(*mesh), *rest))

    def tensor(self, number: int, dtype: Any, shape: tuple[int, ...], cls: type,
               requires_grad: bool, away: bool, state: dict[str, Any] | None) -> Any:
        moved = away and self.device is not None
        t = torch.empty(0, dtype=dtype, device=self.device if moved else "cpu")
        entry, offset, stride = self.source.places[number]
        if 0 in shape:
            t = t.new_empty(shape)
        else:
            storage = self._storage(self.source.names[entry], moved)
            t = _view(t, storage, offset, shape, stride or _contiguous(shape))
        if cls is torch.nn.Parameter:
            t = torch.nn.Parameter(t, requires_grad)
        else:
            t = t if cls is torch.Tensor else t.as_subclass(cls)
            t.requires_grad_(requires_grad)
        if state:
            vars(t).update(state)
        return t

    def _storage(self, name: str, moved: bool) -> Any:
        if (name, moved) not in self.storages:
            bytes_ = torch.frombuffer(self.source.entries[name], dtype=torch.uint8)
            if moved:
                bytes_ = bytes_.to(self.device)
            self.storages[name, moved] = bytes_.untyped_storage()
        return self.storages[name, moved]


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
    span = sum((n - 1) * step for n, step in zip(shape, stride)) + 1
    own = torch.empty(span, dtype=t.dtype, device=t.device)
    raw = torch.empty(0, dtype=torch.uint8, device=t.device)
    own.view(torch.uint8).copy_(raw.set_(storage, offset, (span * size,), (1,)))
    return own.as_strided(shape, stride)

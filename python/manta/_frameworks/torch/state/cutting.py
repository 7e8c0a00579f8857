# SPDX-License-Identifier: Apache-2.0
"""Tensors of a checkpoint in the form that a model has: cut as its own are, whatever number of
ranks saved them.

What ranks have saved pieces of is Scattered: the pieces where they lie in the checkpoint, none of
them copied. A rank that needs a piece of another size copies what it overlaps, and reads no more.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

from manta._frameworks.torch.state.pieces import Piece, Place, is_dtensor, place_of, where


class Scattered:
    """A tensor that lies in a checkpoint in pieces."""

    def __init__(self, p: Piece):
        self.name, self.shape, self.dtype = p.name, torch.Size(p.shape), p.local.dtype
        self.missing = set(p.mesh.ranks)
        self._pieces: dict[tuple[tuple[int, int], ...], tuple[Place, Any]] = {}

    def add(self, rank: int, p: Piece) -> None:
        if rank in self.missing:
            self.missing.remove(rank)
            place = place_of(p, p.mesh.ranks.index(rank))
            key = tuple((s.start, s.stop) for s in place)  # copies on several ranks lie at one
            self._pieces.setdefault(key, (place, p.local.detach()))

    def fill(self, target: Any, at: Place) -> None:
        """target: the part of the tensor that lies there."""
        for place, local in self._pieces.values():
            both = [(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(at, place)]
            if all(start < stop for start, stop in both):
                to = tuple(slice(i - a.start, j - a.start) for (i, j), a in zip(both, at))
                out_of = tuple(slice(i - b.start, j - b.start) for (i, j), b in zip(both, place))
                target[to] = local[out_of]

    def whole(self) -> Any:
        made = torch.empty(self.shape, dtype=self.dtype)
        self.fill(made, tuple(slice(0, n) for n in self.shape))
        return made


class Lazy:
    """Finds the pieces of each tensor, which come rank by rank."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[int, ...]], Scattered] = {}

    def of_rank(self, rank: int) -> Callable[[Piece], Any]:
        def join(p: Piece) -> Any:
            found = self._found.setdefault((p.name, p.mesh.ranks), Scattered(p))
            found.add(rank, p)
            return found
        return join

    def check(self) -> None:
        """All parts were read."""
        for one in self._found.values():
            if one.missing:
                raise ValueError(f'"{one.name}" of the checkpoint is not whole: the part of rank '
                                 f'{min(one.missing)} has no piece of it')


# --- what a model and an optimizer have -----------------------------------------------------------


def like(value: Any, target: Any) -> Any:
    """A value of a checkpoint as `target` needs it: if that is a DTensor of the same shape, the
    same piece of the value."""
    if not is_dtensor(target) or getattr(value, "shape", None) != target.shape:
        return whole(value)
    if is_dtensor(value):
        return value
    from torch.distributed.tensor import DTensor
    with torch.no_grad():
        made = torch.empty_like(target.to_local(), dtype=value.dtype)
        if isinstance(value, Scattered):
            value.fill(made, where(target))
        else:
            made.copy_(value[where(target)])
        return DTensor.from_local(made, target.device_mesh, target.placements, run_check=False,
                                  shape=target.shape, stride=target.stride())


def whole(value: Any) -> Any:
    """The same, in nested dicts, lists and tuples as well, without a tensor in pieces."""
    if isinstance(value, Scattered):
        return value.whole()
    if isinstance(value, dict):
        made = {key: whole(v) for key, v in value.items()}
        return value if all(made[k] is v for k, v in value.items()) else made
    if type(value) in (list, tuple):
        items = [whole(v) for v in value]
        return value if all(a is b for a, b in zip(items, value)) else type(value)(items)
    return value

# SPDX-License-Identifier: Apache-2.0
"""DTensors, of which every rank has a piece.

A piece is saved as the tensor that this rank has of it, under the name of the whole, with the place
that it has there: the mesh of ranks, and along which of its dimensions the tensor is cut. As many
ranks as saved it get DTensors again. Anybody else has all pieces at hand, and gets whole tensors.
"""

from __future__ import annotations

import gc
import math
import sys
from typing import Any, Callable, NamedTuple, NoReturn

import torch

from manta import _pickled
from manta._state.entry import NotWhole, Packing


Place = tuple[slice, ...]  # in the whole tensor


class Mesh(NamedTuple):
    """A DeviceMesh, without the process groups that are only there as long as their processes."""
    device: str
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...] | None


class Piece(NamedTuple):
    name: str
    local: Any
    mesh: Mesh
    placements: tuple[Any, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    parameter: bool
    requires_grad: bool


# --- saving ---------------------------------------------------------------------------------------


def kinds() -> tuple[type, ...]:
    """Of tensors of which a rank has only a piece."""
    return (*_dtensors(), *loaded("torch.distributed._shard.sharded_tensor", "ShardedTensor"))


def is_dtensor(t: Any) -> bool:
    return isinstance(t, _dtensors())


def _dtensors() -> tuple[type, ...]:
    return loaded("torch.distributed.tensor", "DTensor")


def loaded(module: str, *names: str) -> tuple[type, ...]:
    """Those classes of a module that are there: what nobody has loaded, nobody has objects of."""
    found = (getattr(sys.modules.get(module), name, None) for name in names)
    return tuple(cls for cls in found if isinstance(cls, type))


def refuse(t: Any, found: Packing) -> NoReturn:
    path = found.path_of(t)
    what = f'its entry "{".".join(path)}"' if path else "a tensor in it"
    raise NotWhole(
        f"the checkpoint cannot be saved: {what} is a {type(t).__name__}, and each rank has a "
        f"piece of it\nhint: save_checkpoint(..., sharded=True) on all ranks saves the pieces; "
        f"get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)) of "
        f"torch.distributed.checkpoint.state_dict makes a state of whole tensors")


class Pieces:
    """The DTensors of an object that is being packed."""

    def __init__(self, found: Packing):
        self.found = found
        self.count = 0
        self.meshes: dict[int, tuple[Any, Any]] = {}  # by id: the mesh, and what is saved

    def reduce(self, t: Any) -> Any:
        path = self.found.path_of(t)
        with torch.no_grad():
            local = t.to_local()
        if path:
            self.found.paths[id(local)] = (path, local)
        name = ".".join(path) if path else f"#{self.count}"
        self.count += 1
        mesh = t.device_mesh
        if id(mesh) not in self.meshes:  # one object for all, which the pickle holds once
            self.meshes[id(mesh)] = mesh, tuple(_describe(mesh))
        return _pickled.piece, (name, local, self.meshes[id(mesh)][1], tuple(t.placements),
                                tuple(t.shape), tuple(t.stride()),
                                isinstance(t, torch.nn.Parameter), t.requires_grad)


def _describe(mesh: Any) -> Mesh:
    ranks = mesh.mesh
    return Mesh(mesh.device_type, tuple(ranks.flatten().tolist()), tuple(ranks.shape),
                mesh.mesh_dim_names)


# --- as DTensors ----------------------------------------------------------------------------------


class OnMesh:
    """Makes DTensors of this process's pieces."""

    def __init__(self) -> None:
        self._meshes: dict[Mesh, Any] = {}

    def __call__(self, p: Piece) -> Any:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            raise RuntimeError(f'"{p.name}" of the checkpoint is a DTensor, which needs a process '
                               f'group: Trainer(backend="torch") has one')
        from torch.distributed.tensor import DTensor
        if p.mesh not in self._meshes:
            self._meshes[p.mesh] = _find_mesh(p.mesh) or _make_mesh(p.mesh)
        with torch.no_grad():
            t = DTensor.from_local(p.local, self._meshes[p.mesh], p.placements, run_check=False,
                                   shape=torch.Size(p.shape), stride=p.stride)
        return _dressed(t, p)


def _dressed(t: Any, p: Piece) -> Any:
    if p.parameter:
        return torch.nn.Parameter(t, p.requires_grad)
    return t.requires_grad_(p.requires_grad)


def _find_mesh(mesh: Mesh) -> Any:
    """The program's own, if it has made it: the groups of a new one have to be made by all ranks
    together."""
    from torch.distributed.device_mesh import DeviceMesh
    return next((o for o in gc.get_objects()
                 if type(o) is DeviceMesh and _describe(o) == mesh and _is_alive(o)), None)


def _is_alive(mesh: Any) -> bool:
    """Whether its groups are those of now, not of an attempt that is over."""
    from torch.distributed import get_process_group_ranks
    try:
        return all(get_process_group_ranks(mesh.get_group(i)) for i in range(mesh.ndim))
    except Exception:  # each version of torch has its own for a group that is gone
        return False


def _make_mesh(mesh: Mesh) -> Any:
    """One of all ranks in a row has the default group. Any other has none: its tensors can be
    loaded from, which moves no data between ranks."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    size = torch.distributed.get_world_size()
    if mesh.sizes == (size,) and mesh.ranks == tuple(range(size)):
        return init_device_mesh(mesh.device, mesh.sizes, mesh_dim_names=mesh.names)
    return DeviceMesh(mesh.device, torch.tensor(mesh.ranks).view(mesh.sizes),
                      mesh_dim_names=mesh.names, _init_backend=False)


# --- as whole tensors -----------------------------------------------------------------------------


class Whole:
    """Puts pieces together, which come rank by rank."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[int, ...]], tuple[Any, set[int]]] = {}

    def of_rank(self, rank: int) -> Callable[[Piece], Any]:
        return lambda p: self._add(rank, p)

    def _add(self, rank: int, p: Piece) -> Any:
        """The whole tensor; what is not known yet of it comes with the parts of other ranks."""
        key = p.name, p.mesh.ranks
        if key not in self._found:
            whole = _dressed(p.local.detach().new_empty(p.shape), p)
            self._found[key] = whole, set(p.mesh.ranks)
        whole, missing = self._found[key]
        if rank in missing:
            missing.remove(rank)
            with torch.no_grad():
                whole[place_of(p, p.mesh.ranks.index(rank))] = p.local
        return whole

    def check(self) -> None:
        """All parts were read."""
        for (name, _), (_, missing) in self._found.items():
            if missing:
                raise ValueError(f'"{name}" of the checkpoint is not whole: the part of rank '
                                 f'{min(missing)} has no piece of it')


def place_of(p: Piece, index: int) -> Place:
    """Where the piece lies whose rank is at `index` of the mesh."""
    place = _cut(p.name, p.shape, p.mesh.sizes, p.placements, index)
    if tuple(s.stop - s.start for s in place) != tuple(p.local.shape):
        raise ValueError(f'"{p.name}" of the checkpoint is a DTensor with a sharding of its own: '
                         f'only as many ranks as saved it can load it')
    return place


def where(t: Any) -> Place:
    """What this rank has of a DTensor."""
    mesh = _describe(t.device_mesh)
    index = mesh.ranks.index(torch.distributed.get_rank())
    return _cut("a tensor of this run", tuple(t.shape), mesh.sizes, t.placements, index)


def _cut(name: str, shape: tuple[int, ...], sizes: tuple[int, ...], placements: tuple[Any, ...],
         index: int) -> Place:
    """Pieces are cut as torch.chunk does it, along one dimension of the mesh after the other."""
    start, size = [0] * len(shape), list(shape)
    for i, placement in enumerate(placements):
        at = index // math.prod(sizes[i + 1:]) % sizes[i]
        kind = type(placement).__name__
        if kind == "Shard":
            d = placement.dim
            chunk = -(-size[d] // sizes[i])
            first = min(at * chunk, size[d])
            start[d], size[d] = start[d] + first, min(chunk, size[d] - first)
        elif kind != "Replicate":
            raise ValueError(f'"{name}" of the checkpoint is a DTensor placed as {placement}: '
                             f'only as many ranks as saved it can load it')
    return tuple(slice(a, a + n) for a, n in zip(start, size))

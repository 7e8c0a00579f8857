# SPDX-License-Identifier: Apache-2.0
"""The groups that torch has, and what becomes of them from call to call.

A communicator ends with the call of the function that it was made in. A group may outlive it:
between two calls it rests, and in the next one it has another communicator.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend as _TorchBackend
from torch._C._distributed_c10d import ProcessGroup

from manta import _manta
from manta._frameworks.torch.process_group.operations import NAME, Operations

_FINISH_S = 10.0  # for what is in flight when a group is destroyed
devices = ["cpu"]  # whose tensors a Group takes; those of "cuda" go through host memory


def can_be_a_part() -> bool:
    """Whether this torch lets a class in Python be a backend (since 2.14)."""
    try:
        _TorchBackend.__init__(_TorchBackend.__new__(_TorchBackend), 0, 1)
    except TypeError:
        return False
    return True


class _Base(Operations):
    """What both kinds tell torch of themselves."""

    def size(self) -> int:
        return self._n

    def rank(self) -> int:
        return self._me

    getSize, getRank = size, rank

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._comm.set_timeout(timeout.total_seconds())

    _set_default_timeout = set_timeout

    def name(self) -> str:
        return NAME

    getBackendName = _get_backend_name = name

    def shutdown(self) -> None:
        """What is in flight is finished. Then the group is of no use any more."""
        self._finish(min(self._timeout.total_seconds(), _FINISH_S))
        self.abort()

    def abort(self) -> None:
        """The same, but what is in flight ends at once."""
        self._rest()
        if self in _live:
            _live.remove(self)

    def _set_sequence_number_for_group(self) -> None:
        """All begin with 0; libmanta itself compares the calls."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    @property
    def options(self) -> Any:
        return _TorchBackend.Options(NAME, self._timeout)


class Part(_TorchBackend):
    """What a Group is to those in torch's C++ who want its backend: calls go to the Group."""

    def __init__(self, group: Group):
        _TorchBackend.__init__(self, group._me, group._n)
        self._group = weakref.ref(group)  # which has us


def _passed_on(name: str) -> Any:
    def call(self: Part, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._group(), name)(*args, **kwargs)
    return call


for _name in ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter",
              "reduce_scatter_single", "reduce_scatter_single_coalesced", "broadcast", "allgather",
              "all_gather_single", "all_gather_single_coalesced", "allgather_coalesced", "gather",
              "scatter", "barrier", "monitored_barrier", "all_to_all_single", "alltoall", "send",
              "recv", "recv_anysource", "name", "getBackendName", "set_timeout", "shutdown",
              "abort", "start_coalescing", "end_coalescing", "_get_sequence_number_for_group"):
    setattr(Part, _name, _passed_on(_name))


class Group(_Base, ProcessGroup):  # type: ignore[misc]
    """A process group of ours alone: torch calls it without a detour."""

    supports_coalescing = False
    supports_splitting = True

    def __init__(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta, store: Any):
        if can_be_a_part():
            ProcessGroup.__init__(self, store, comm.rank(), comm.size())
        else:  # then a class in Python has no store
            ProcessGroup.__init__(self, comm.rank(), comm.size())
        self._open(comm, ranks, timeout)
        self._store = store
        self._name = self._desc = ""
        self._part: Any = Part(self) if can_be_a_part() else None
        if self._part is not None:
            custom = ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(custom)
            for device in devices:
                self._register_backend(torch.device(device), custom, self._part)

    if not can_be_a_part():
        @property
        def _device_types(self) -> list[torch.device]:
            return [torch.device(d) for d in devices]

    def _get_backend(self, device: torch.device) -> Any:
        return self

    get_backend = _get_backend

    def get_group_store(self) -> Any:
        return self._store

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self) -> str:
        return self._name

    @property
    def group_name(self) -> str:
        return self._name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_desc(self) -> str:
        return self._desc

    def split_group(self, new_ranks: list[int], timeout: timedelta | None = None,
                    opts: Any = None, group_name: str | None = None, group_desc: str | None = None,
                    device_types: Any = None) -> Group | None:
        """The ranks of this group that are in the list are one of their own, in its order."""
        if self._me not in new_ranks:
            return None
        name = group_name or f"{self._name}:split:{'_'.join(map(str, new_ranks))}"
        ours = self._ranks or list(range(self._n))
        store = torch.distributed.PrefixStore(f"{name}/", self.get_group_store())
        child = make(Group, [ours[r] for r in new_ranks], timeout or self._timeout, store)
        assert isinstance(child, Group)
        child._set_group_name(name)
        child._set_group_desc(group_desc or f"{self._desc}:split")
        return child


class CpuBackend(_Base, _TorchBackend):
    """The part for CPU tensors of a group that has another for GPUs."""

    supports_splitting = True

    def __init__(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta, store: Any):
        _TorchBackend.__init__(self, comm.rank(), comm.size())
        self._open(comm, ranks, timeout)

    def split(self, store: Any, ranks: list[int], opts: Any) -> Group | CpuBackend:
        """The part of a group that is being split. torch asks those who are in no new group, too,
        and cannot take None from a class in Python: it crashes."""
        if self._me not in ranks:
            raise RuntimeError(f"split_group: rank {self._me} is in none of the new groups, which "
                               f"a group of CPU and GPU tensors cannot have\nhint: "
                               f"dist.new_group(ranks) makes one of some ranks")
        ours = self._ranks or list(range(self._n))
        return make(CpuBackend, [ours[r] for r in ranks], self._timeout, store)



# --- from call to call ----------------------------------------------------------------------------

_live: list[Group | CpuBackend] = []  # in the order in which they were made


def make(kind: type[Group] | type[CpuBackend], ranks: list[int], timeout: timedelta,
         store: Any) -> Group | CpuBackend:
    """ranks: libmanta's, in the order that the group is to have; none: all."""
    group = kind(_comm_of(ranks), ranks, timeout, store)
    _live.append(group)
    return group


def _comm_of(ranks: list[int]) -> _manta.Comm:
    """Of those; without any, of all. Always one of its own: what goes wrong in it, or is in flight
    when it is destroyed, leaves that of the run as it is, and with it the way to another."""
    comm = _manta.comm()
    return comm.group(ranks or list(range(comm.size())))


def rest() -> None:
    """The communicators end with the call. The other ranks hear of it when they hear how the call
    ended: who is told earlier that this rank has left would say so first."""
    for group in _live:
        group._rest(tell=False)


def wake() -> None:
    """All ranks call it, and have made their groups in the same order."""
    for group in _live:
        group._take(_comm_of(group._ranks))


def forget() -> None:
    """Those that have ended with the default group."""
    _live.clear()

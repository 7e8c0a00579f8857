# SPDX-License-Identifier: Apache-2.0
"""The groups that torch has, and what becomes of them from call to call.

A communicator ends with the call of the function that it was made in. A group may outlive it:
between two calls it rests, and in the next one it has another communicator.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend as _TorchBackend
from torch._C._distributed_c10d import ProcessGroup

from manta import _manta
from manta._process_group.operations import Operations

NAME = "manta"


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
        """Ends what is in flight. The group is of no use any more."""
        self._rest()
        if self in _live:
            _live.remove(self)

    abort = shutdown

    def _set_sequence_number_for_group(self) -> None:
        """Calls are compared by libmanta itself."""

    def _get_sequence_number_for_group(self) -> int:
        return 0


class Group(_Base, ProcessGroup):  # type: ignore[misc]
    """A process group for CPU tensors alone: torch calls it without a detour."""

    supports_coalescing = supports_splitting = False

    def __init__(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta):
        ProcessGroup.__init__(self, comm.rank(), comm.size())
        self._open(comm, ranks, timeout)
        self._name = self._desc = ""

    def _get_backend(self, device: torch.device) -> Any:
        return self

    get_backend = _get_backend

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


class CpuBackend(_Base, _TorchBackend):
    """The part for CPU tensors of a group that has another for GPUs."""

    def __init__(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta):
        _TorchBackend.__init__(self, comm.rank(), comm.size())
        self._open(comm, ranks, timeout)


def can_be_a_part() -> bool:
    """Whether this torch lets a class in Python be one backend of several."""
    try:
        _TorchBackend.__init__(_TorchBackend.__new__(_TorchBackend), 0, 1)
    except TypeError:
        return False
    return True


# --- from call to call ----------------------------------------------------------------------------

_live: list[Group | CpuBackend] = []  # in the order in which they were made


def make(kind: type[Group] | type[CpuBackend], ranks: list[int],
         timeout: timedelta) -> Group | CpuBackend:
    group = kind(_comm_of(ranks), ranks, timeout)
    _live.append(group)
    return group


def _comm_of(ranks: list[int]) -> _manta.Comm:
    """Of those; without any, of all."""
    comm = _manta.comm()
    return comm.group(ranks) if ranks else comm


def rest() -> None:
    for group in _live:
        group._rest()


def wake() -> None:
    """All ranks call it, and have made their groups in the same order."""
    for group in _live:
        group._take(_comm_of(group._ranks))


def forget() -> None:
    """Those that have ended with the default group."""
    _live.clear()

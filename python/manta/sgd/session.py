# SPDX-License-Identifier: Apache-2.0
"""What a train function calls. In plain code, outside of a worker, the same function runs too:
there reports and checkpoints go nowhere, and the world is one rank."""

from __future__ import annotations

import os
import warnings
from typing import Any

from manta import _manta


class SessionError(RuntimeError, ValueError):
    """Something that only exists inside a train function."""


_told: set[str] = set()


def _outside(call: str) -> None:
    """Plain code: an error if MANTA_STRICT says so, else one warning per call."""
    if os.environ.get("MANTA_STRICT") == "1":
        raise SessionError(f"sgd.{call}() was called outside of a train function")
    if call not in _told and call in ("report", "save_checkpoint"):
        _told.add(call)
        warnings.warn(f"sgd.{call}() does nothing outside of a train function", stacklevel=3)


def in_worker() -> bool:
    """Whether this code runs in a worker of a trainer."""
    return _manta.in_session()


def report(**metrics: Any) -> None:
    """Queues one row of metrics; never waits for other ranks."""
    if _manta.in_session():
        _manta.report(**metrics)
    else:
        _outside("report")


def save_checkpoint(*args: Any, **state: Any) -> None:
    if _manta.in_session():
        raise NotImplementedError
    _outside("save_checkpoint")


def load_checkpoint() -> Any:
    if _manta.in_session():
        raise NotImplementedError
    _outside("load_checkpoint")
    return None


def _place(index: int, call: str, alone: int) -> int:
    if _manta.in_session():
        return _manta.place()[index]
    _outside(call)
    return alone


def world_rank() -> int:
    """This worker's number among all, from 0."""
    return _place(0, "world_rank", 0)


def world_size() -> int:
    """How many workers there are."""
    return _place(1, "world_size", 1)


def local_rank() -> int:
    """This worker's number on its host, from 0."""
    return _place(2, "local_rank", 0)


def local_world_size() -> int:
    """How many workers there are on this host."""
    return _place(3, "local_world_size", 1)


def node_rank() -> int:
    """This host's number, from 0."""
    return _place(4, "node_rank", 0)


def heartbeat() -> None:
    """A sign of life, for a long step that neither reports nor saves."""
    if _manta.in_session():
        _manta.heartbeat()
    else:
        _outside("heartbeat")


def preempted() -> bool:
    """True after the run was asked to stop: save and return soon."""
    return _manta.preempted() if _manta.in_session() else False

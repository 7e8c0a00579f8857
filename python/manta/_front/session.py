# SPDX-License-Identifier: Apache-2.0
"""What a train function calls. In plain code, outside of a worker, the same function runs too:
there reports and checkpoints go nowhere, and the world is one rank."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from manta import _manta
from manta._names import public


@public
class SessionError(RuntimeError, ValueError):
    """Something that only exists inside a train function."""


_DEVICES = ("cpu", "cuda", "hpu", "meta", "mps", "mtia", "npu", "xla", "xpu")
_told: set[str] = set()


def _in_child_of_worker() -> bool:
    """Whether a worker's multiprocessing started this process, by spawn or forkserver: a DataLoader
    does. (A forked one has the session, which refuses by itself.)"""
    process = sys.modules.get("multiprocessing.process")
    return _manta.knob("MANTA_WORKER") is not None and process is not None and (
        process.parent_process() is not None)


def outside(call: str) -> None:
    """Plain code: an error if MANTA_STRICT says so, else one warning per call."""
    if call in ("report", "save_checkpoint", "load_checkpoint") and _in_child_of_worker():
        raise SessionError(f"{call}() in a child process of a worker: only the worker itself "
                           f"can call it\nhint: send the values to the worker, and call it there")
    if _manta.knob("MANTA_STRICT"):
        raise SessionError(f"{call}() was called outside of a train function")
    if call not in _told and call in ("report", "save_checkpoint"):
        _told.add(call)
        warnings.warn(f"{call}() does nothing outside of a train function", stacklevel=3)


def in_worker() -> bool:
    """Whether this code runs in a worker of a trainer."""
    return _manta.in_session()


def report(*args: Any, **metrics: Any) -> None:
    """Queues one row of metrics, given by name: report(loss=0.5). Never waits for other ranks. Any
    thread of the worker may, and so with save_checkpoint: rows are numbered in the order in which
    the calls get through."""
    if args:
        hint = "report(**metrics)" if isinstance(args[0], dict) else "report(loss=…)"
        raise TypeError(f"report takes metrics by name, not {args[0]!r}\nhint: {hint}")
    if _manta.in_session():
        _manta.report(**metrics)
    else:
        outside("report")


def save_checkpoint(*args: Any, files: bool = False, sharded: bool = False, **state: Any) -> None:
    """Saves a checkpoint: `save_checkpoint(model=…, epoch=…)`, or any one object. After the report
    it belongs to. Costs the step one copy of the memory; the disk is written to behind it. Rank 0's
    is the checkpoint; the others call it too, and learn there that the run ends. A dict gets
    `_timestamp`.

    files: each element or entry also becomes a file of its own that torch.load opens
    (`checkpoints/NNNNNN/model.pt` in the run's directory), on disk before the call returns.

    sharded: every rank saves its own part: all of them call it, and it returns when all parts are
    there. It counts as a whole or not at all. DTensors, as FSDP has them, are saved in no other
    way: of each the piece that this rank has."""
    if args and state or len(args) > 1:
        raise TypeError("save_checkpoint takes one object, or entries by name\nhint: "
                        "save_checkpoint(model=model.state_dict(), epoch=…); with files=True each "
                        "becomes a file that torch.load opens")
    if not _manta.in_session():
        outside("save_checkpoint")
        return
    from manta import _state
    _state.save(args[0] if args else state, files, sharded)


def load_checkpoint(device: Any = None) -> Any:
    """What was saved last, after a revival too, or None. Its tensors are mapped, not copied, and
    may be changed. Tensors that were on a GPU come back in host memory, or on `device` if one is
    given.

    Of a sharded checkpoint each rank gets its own part back; if the number of ranks is another one
    now, all of them get the list of all parts, and in it DTensors as whole tensors.

    It is the same on every rank. A rank's first call, before its first save_checkpoint, gives what
    the attempt began from, however far rank 0 has come; later ones what rank 0 saved last, after a
    wait if this rank has saved more often than rank 0 so far."""
    if not _manta.in_session():
        outside("load_checkpoint")
        return None
    if isinstance(device, str) and device.partition(":")[0] not in _DEVICES:
        raise ValueError(f"load_checkpoint takes a device such as 'cuda', not {device!r}\n"
                         f"hint: run(…, checkpoint=path) says which checkpoint a run begins from")
    from manta import _state
    return _state.load(device)


def _place(index: int, call: str, alone: int) -> int:
    if _manta.in_session():
        return _manta.place()[index]
    outside(call)
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
        outside("heartbeat")


def preempted() -> bool:
    """True after the run was asked to stop: save and return soon."""
    return _manta.preempted() if _manta.in_session() else False

# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is a directory, of which any rank may have files.

(1) All ranks know its path, which follows from attempt and report: each puts its files there before
    its row. Rank 0 saves it when all ranks have come to that report: what is saved is whole.
(2) How far each rank has come is a number in the file checkpoints/.reports-ATTEMPT, at the place of
    its rank: one small write with every report.
(3) A rank that has never reported is waited for once, for a while; one that has left its train
    function is not waited for.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from manta import _manta
from manta._front.fit import files as _files

ARRIVAL_S = 10.0  # for the first report of another rank
_POLL_S = 0.0005
_ONE = struct.Struct("<q")

_file = -1  # of this call of the train function
_absent: set[int] = set()  # ranks that never reported


def end() -> None:
    """The train function has returned."""
    global _file
    if _file >= 0:
        os.close(_file)
        _file = -1
    _absent.clear()


def put(source: Path, may_move: bool) -> Path:
    """The files of this rank, before its row; where they are then."""
    if not source.is_dir():
        raise FileNotFoundError(f"the checkpoint's directory {source} is not there")
    to = Path(_manta.directory())
    if may_move or _files.is_temporary(source):
        _files.move(source, to)
    else:
        _files.clone(source, to)
    return to


# --- how far ranks have come ----------------------------------------------------------------------


def _open() -> int:
    """The file, across hosts every time anew: what one writes, another sees when it opens it."""
    global _file
    if _file < 0:
        place = Path(_manta.run_dir(), "checkpoints")
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _file = os.open(place / f".reports-{_manta.place()[5]}",
                        os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return _file


def _let_go() -> None:
    global _file
    if _spans_hosts():
        os.close(_file)
        _file = -1


def _spans_hosts() -> bool:
    _, world, _, local_world, _, _ = _manta.place()
    return local_world < world


def arrive() -> None:
    """On other ranks than 0, with every report: its files are in place."""
    rank, world, *_ = _manta.place()
    if world == 1:
        return
    try:
        os.pwrite(_open(), _ONE.pack(_manta.iteration() + 1), rank * _ONE.size)
        _let_go()
    except OSError:  # a host without the run's directory, where put() has told it
        pass


def _numbers(world: int) -> list[int]:
    data = os.pread(_open(), world * _ONE.size, 0).ljust(world * _ONE.size, b"\0")
    _let_go()
    return [n for n, in _ONE.iter_unpack(data)]


def await_others() -> None:
    """On rank 0, when its own files are in place: until those of all others are."""
    _, world, *_ = _manta.place()
    report, began = _manta.iteration() + 1, time.monotonic()
    while world > 1:
        numbers = _numbers(world)
        late = {r for r in range(1, world) if numbers[r] < report} - _absent
        if late and time.monotonic() > began + ARRIVAL_S:
            _absent.update(r for r in late if numbers[r] == 0)
        if not late - _absent or _manta.departed() in late:
            return
        _manta.check()
        _manta.heartbeat()
        time.sleep(_POLL_S)

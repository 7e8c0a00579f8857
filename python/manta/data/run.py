# SPDX-License-Identifier: Apache-2.0
"""Data sets in a worker of a run: iterators whose positions are a part of every checkpoint.

(1) A data set that was given to a run has a name there; an iterator over this rank's shard opens
    the run's loader of that name, on every rank alike. Rank 0's position goes with each checkpoint,
    and in an attempt that begins from one the first iterator of a name goes on from there.
(2) An iterator that is made while another of the same name is open has a name of its own, by its
    number. Programs make them in the same order in every attempt.
(3) Each iterator of a name is the epoch behind that of the one before it.
(4) A loop that was left by `break` is over: what is saved then is the beginning of the next epoch,
    which the next loop is of. Unless the run was asked to stop: then it goes on where it was.
"""

from __future__ import annotations

from typing import Any

from manta import _manta

_epochs: dict[str, int] = {}  # that the next iterator of a name is of
_open: set[str] = set()
_job: Any = None  # whose they are


def _renew() -> None:
    """Every attempt begins anew."""
    global _job
    from manta._runtime import worker
    if _job is not worker.job:
        _job = worker.job
        _epochs.clear()
        _open.clear()


def is_own(rank: int, ranks: int) -> bool:
    """Whether this is the shard of this worker."""
    return _manta.in_session() and (rank, ranks) == tuple(_manta.place()[:2])


def enter(name: str) -> tuple[str, int]:
    """The name of an iterator that is opened now, and the epoch that it is of."""
    _renew()
    own, number = name, 1
    while own in _open:
        number += 1
        own = f"{name}#{number}"
    _open.add(own)
    return own, _epochs.get(own, 0)


def _begins(at: dict[str, int]) -> bool:
    return at["rows"] == at["inside"] == at["pass"] == 0


def skip_rest(loader: _manta.Loader) -> None:
    """A loop was left: checkpoints that follow have the beginning of the next epoch."""
    at = loader.save()
    if not _begins(at) and _manta.in_session() and not _manta.preempted():
        start = dict.fromkeys(("pass", "rows", "inside", "ticket", "before", "taken"), 0)
        loader.mark({**at, **start, "epoch": loader.epoch() + 1})


def leave(name: str, loader: _manta.Loader | None) -> None:
    """An iterator is closed, or could not be opened."""
    if name not in _open:
        return  # of another attempt
    _open.discard(name)
    if loader is None:
        return
    at = loader.save()
    _epochs[name] = at["epoch"] if _begins(at) else loader.epoch() + 1
    skip_rest(loader)

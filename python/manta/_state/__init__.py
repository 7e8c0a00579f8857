# SPDX-License-Identifier: Apache-2.0
"""Python objects as checkpoints, and back.

A checkpoint is named tensors and a small value. An object becomes one without its tensors' bytes
passing through a pickle: the pickle holds the structure alone and lies there as the tensor
"_pickle"; each tensor lies beside it under its path in the object ("model.layer.weight"), with its
own type and shape, where `manta ckpt show` and programs in C find it.

(1) "_pickle" is two pickles: a table (where each tensor is), then the object.
(2) Memory that several tensors share is written once: the largest of them is the entry, the others
    are views of it. Only what overlaps counts: the rest of a storage is not written.
(3) What cannot be an entry (sparse, meta, quantized) goes its own way through the pickle.
(4) Of a tensor that is divided among ranks the piece of this rank is an entry, in a sharded
    checkpoint.
(5) What is restored lies in the mapping of the checkpoint: nothing is copied until it is written
    to.

What is a tensor, how it is packed and how it is made again its framework says (manta._frameworks.
tensors); here is what all have in common.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import Any, Iterator

from manta import _frameworks, _manta
from manta._state import chance
from manta._state.entry import FORMAT
from manta._state.files import write_files
from manta._state.packing import find, pack, rows_of
from manta._state.restoring import is_pickled, load_dir, restore
from manta._state.tidy import clean, stamp

__all__ = ["clean", "is_pickled", "load", "load_dir", "pack", "restore", "save", "stamp",
           "write_dir", "write_files"]


_saving = threading.RLock()


def _renew() -> None:
    """A forked child may find it taken by a thread that it does not have."""
    global _saving
    _saving = threading.RLock()


os.register_at_fork(after_in_child=_renew)


@contextmanager
def _alone() -> Iterator[None]:
    """One thread at a time remembers what a state became, and has the files of the next save. Who
    waits leaves when the attempt ends."""
    lock = _saving
    while not lock.acquire(timeout=0.1):
        _manta.check()
    try:
        yield
    finally:
        lock.release()


def save(obj: Any, files: bool, sharded: bool) -> None:
    """What save_checkpoint does in a worker; any of its threads."""
    if files and sharded:
        raise ValueError("save_checkpoint: files and sharded exclude each other; files are of rank "
                         "0 alone")
    chance.save()
    if not sharded and _manta.place()[0] != 0:
        _manta.save([], {})
        return
    obj = stamp(clean(obj))
    if sharded:
        rows, value, keep = pack(obj, True)
        _manta.save(rows, value, None, True)
        del keep
        return
    with _alone():
        _save_whole(obj, files)


def _save_whole(obj: Any, files: bool) -> None:
    known = _frameworks.all_tensors()
    if not files and any(tensors.save_again(obj) for tensors in known):
        return
    found, stream = find(obj)
    if files:
        write_files(obj, _manta.files())
    fillers = [fill for tensors in known if (fill := tensors.filler(found.entries))]

    def fill_all(addresses: list[int], *slot: Any) -> None:
        for fill in fillers:
            fill(addresses, *slot)

    _manta.save(rows_of(found.entries, stream), {"format": FORMAT}, fill_all if fillers else None)
    for tensors in known:
        tensors.remember(found.entries, stream)


def write_dir(obj: Any, path: str | os.PathLike[str]) -> None:
    """The object as a checkpoint's directory, which load_dir reads; outside of any run."""
    rows, value, keep = pack(clean(obj))
    _manta.write_checkpoint(os.fspath(path), rows, value)
    del keep


def load(device: Any = None, lazy: bool = False) -> Any:
    """What load_checkpoint does in a worker; lazy: see restore."""
    from manta._runtime import worker
    job = worker.job
    found = _manta.load()
    if found is not None and not found.given():
        chance.restore()
    if found is not None:  # what the run itself has saved nobody else has written
        trust = not found.given() or (job is not None and job.trust)
        return restore(found, trust, device, _manta.place()[:2], lazy=lazy)
    return job.checkpoint if job is not None else None

# SPDX-License-Identifier: Apache-2.0
"""The generators of random numbers of every rank, as they were at a checkpoint of a run that reads
data sets: what follows the checkpoint draws the same numbers again.

(1) Each rank gives its own at its own save, by the number of reports that the checkpoint belongs
    to; ranks do not wait for each other. They go where the checkpoint goes: to the driver's host,
    to the store of a run, and away with it.
(2) A rank puts them back once in an attempt, when it first loads a checkpoint of this run. A rank
    that was not there then, or had not come to that save, is seeded by what rank 0 gave and by its
    own number: the same numbers again whenever the run goes on from there.
(3) The bytes are a line of JSON, then the states: reading them runs nothing.
"""

from __future__ import annotations

import array
import hashlib
import json
import random
import sys
from typing import Any

from manta import _frameworks, _manta

_restored_in: Any = None  # the job that has put its states back


def _job() -> Any:
    from manta._runtime import worker
    return worker.job if worker.job is not None and worker.job.datasets is not None else None


# --- states as bytes ------------------------------------------------------------------------------


def states() -> dict[str, bytes]:
    """Of all generators that this process has loaded."""
    version, numbers, gauss = random.getstate()
    out = {"python": array.array("I", numbers).tobytes(),
           "python-rest": json.dumps([version, gauss]).encode()}
    if numpy := sys.modules.get("numpy.random"):
        kind, keys, *rest = numpy.get_state()
        out |= {"numpy": keys.tobytes(), "numpy-rest": json.dumps([kind, *rest]).encode()}
    for framework in _frameworks.imported():
        out |= framework.random_states()
    return out


def set_states(found: dict[str, bytes]) -> None:
    version, gauss = json.loads(found["python-rest"])
    random.setstate((version, tuple(array.array("I", found["python"])), gauss))
    if "numpy" in found:
        import numpy
        kind, *rest = json.loads(found["numpy-rest"])
        numpy.random.set_state((kind, numpy.frombuffer(found["numpy"], "u4"), *rest))
    for framework in _frameworks.imported():
        framework.set_random_states(found)


def seed(words: bytes) -> None:
    """All generators that this process has loaded."""
    digest = hashlib.sha256(words).digest()
    random.seed(digest)
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed(list(array.array("I", digest)))
    for framework in _frameworks.imported():
        framework.seed_all(int.from_bytes(digest[:8], "little"))


def _pack(found: dict[str, bytes]) -> bytes:
    head = json.dumps([[name, len(state)] for name, state in found.items()]).encode()
    return head + b"\n" + b"".join(found.values())


def _unpack(packed: bytes) -> dict[str, bytes]:
    head, _, rest = packed.partition(b"\n")
    found, at = {}, 0
    for name, size in json.loads(head):
        found[name] = rest[at:at + size]
        at += size
    return found


# --- with checkpoints -----------------------------------------------------------------------------


def save() -> None:
    """At each save of a rank."""
    if _job() is not None:
        _manta.save_random(_pack(states()))


def restore() -> None:
    """At each load of a checkpoint of this run."""
    global _restored_in
    job = _job()
    if job is None or _restored_in is job:
        return
    _restored_in = job
    if (kept := _manta.load_random()) is None:
        return
    owner, packed = kept
    rank = _manta.place()[0]
    set_states(_unpack(packed))
    if owner != rank:  # bytes of equal states may differ, numbers that they draw do not
        seed(random.randbytes(32) + b"rank %d" % rank)

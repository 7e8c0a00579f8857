# SPDX-License-Identifier: Apache-2.0
"""The generators of random numbers of every rank, as they were at a checkpoint of a run that reads
data sets: what follows the checkpoint draws the same numbers again.

(1) Each rank writes its own at its own save, into the run's directory, by the number of reports
    that the checkpoint belongs to; ranks do not wait for each other. The last few are kept.
(2) A rank puts them back once in an attempt, when it first loads a checkpoint of this run. A rank
    that wrote none for it, or that was not there then, keeps what it has.
(3) A file is a line of JSON, then bytes: reading it runs nothing.
"""

from __future__ import annotations

import array
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from manta import _frameworks, _manta

KEPT = 32  # states of a rank: it may be ahead of rank 0 by so many saves
_restored_in: Any = None  # the job that has put its states back


def _job() -> Any:
    from manta._runtime import worker
    return worker.job if worker.job is not None and worker.job.datasets is not None else None


def _folder() -> Path:
    return Path(_manta.run_dir(), "random", str(_manta.place()[0]))


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


# --- files ----------------------------------------------------------------------------------------


def save() -> None:
    """At each save of a rank."""
    if _job() is None:
        return
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = states()
    temporary = folder / f".{os.getpid()}"
    temporary.write_bytes(json.dumps([[k, len(v)] for k, v in found.items()]).encode() + b"\n"
                          + b"".join(found.values()))
    os.replace(temporary, folder / f"{_manta.iteration():012}")
    for old in sorted(p.name for p in folder.iterdir() if p.name.isdigit())[:-KEPT]:
        (folder / old).unlink(missing_ok=True)


def restore(checkpoint: _manta.Checkpoint | None) -> None:
    """At each load of a checkpoint of this run."""
    global _restored_in
    job = _job()
    if checkpoint is None or job is None or _restored_in is job:
        return
    _restored_in = job
    try:
        head, _, rest = (_folder() / f"{checkpoint.iteration():012}").read_bytes().partition(b"\n")
    except FileNotFoundError:
        return
    found, at = {}, 0
    for name, size in json.loads(head):
        found[name] = rest[at:at + size]
        at += size
    set_states(found)

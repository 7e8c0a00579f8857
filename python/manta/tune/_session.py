# SPDX-License-Identifier: Apache-2.0
"""What a trial calls: its reports and checkpoints, and what it is."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manta import _manta
from manta._front import session as _session
from manta._front.fit import context as _context
from manta._front.fit.checkpoint import Checkpoint
from manta._front.session import load_checkpoint, save_checkpoint
from manta.tune._naming import number_in

__all__ = ["checkpoint_dir", "get_trial_dir", "get_trial_id", "get_trial_name",
           "get_trial_resources", "is_session_enabled", "load_checkpoint", "report",
           "save_checkpoint"]


_made: str | None = None  # a directory that belongs to the next report


def report(_metric: Any = None, *, checkpoint: Checkpoint | None = None, **metrics: Any) -> None:
    """One row of metrics of this trial: report(loss=0.5), or report({"loss": 0.5}). The scheduler
    may end the trial here."""
    global _made
    row = dict(_metric) if isinstance(_metric, dict) else metrics
    if _metric is not None and not isinstance(_metric, dict):
        row["_metric"] = _metric
    if checkpoint is None and _made is not None and _manta.in_session():
        made, _made = _made, None
        _report_made(row, made)
        return
    # Where there are other ranks, rank 0 waits for all of them before it saves a directory.
    if checkpoint is not None or _manta.in_session() and _manta.place()[1] > 1:
        _context.report(row, checkpoint=checkpoint)
    else:
        _session.report(**row)


def _report_made(row: dict[str, Any], made: str) -> None:
    """With the directory that was made for this report, and is not needed any more."""
    checkpoint = Checkpoint(made)
    checkpoint._move = True
    try:
        _context.report(row, checkpoint=checkpoint)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def temporary_dir() -> tempfile.TemporaryDirectory[str]:
    """In the directory of the trial, where it can be moved from."""
    return tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=get_trial_dir())


@contextlib.contextmanager
def checkpoint_dir(step: int | None = None) -> Iterator[str]:
    """A directory for the files of a checkpoint. It is one with the next report."""
    global _made
    if not _manta.in_session():
        _session.outside("save_checkpoint")
        with tempfile.TemporaryDirectory() as nowhere:
            yield nowhere
        return
    made = tempfile.mkdtemp(prefix=".checkpoint-", dir=get_trial_dir())
    yield made
    if _made is not None:
        shutil.rmtree(_made, ignore_errors=True)
    _made = made


def loaded_directory() -> str | None:
    """The directory of the checkpoint that this trial begins from, or None."""
    found = _context.get_checkpoint()
    return None if found is None else found.to_directory()


def get_trial_dir() -> str:
    """The directory of this trial."""
    return _manta.run_dir() if _manta.in_session() else str(Path.cwd())


def get_trial_id() -> str:
    """The number of this trial, in five digits."""
    return number_in(get_trial_dir()) if _manta.in_session() else "00000"


def get_trial_name() -> str:
    """The name of its directory."""
    return Path(get_trial_dir()).name


def get_trial_resources() -> dict[str, float]:
    """What this trial holds; .required_resources is the same."""
    return _context.get_trial_resources() or {}


def is_session_enabled() -> bool:
    """Whether this code runs in a trial."""
    return _manta.in_session()

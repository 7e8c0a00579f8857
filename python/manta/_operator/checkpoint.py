# SPDX-License-Identifier: Apache-2.0
"""The state of a training in a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from manta import _manta

_SUFFIX = ".pt"


def write_file(path: Path, state: bytes) -> Path:
    """Whole or not at all: readers find the file of before until this one is on disk."""
    fd, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise
    return path


def newest_in(given: str | Path) -> Path:
    """The file, or that of a directory that was written last."""
    path = Path(given).expanduser()
    if not path.is_dir():
        return path
    found = sorted(path.glob(f"*{_SUFFIX}"), key=lambda p: (p.stat().st_mtime_ns, p.name))
    if not found:
        raise FileNotFoundError(f"{path} has no file that ends in {_SUFFIX}")
    return found[-1]


class AutoCheckpoint:
    """That of checkpoint="auto": one file, the newest state."""

    def __init__(self, logdir: str | Path | None):
        self._logdir = logdir
        self.path: Path | None = None

    def write(self, state: bytes) -> None:
        if self.path is None:
            results = self._logdir or _manta.knob("MANTA_RESULTS") or "~/manta_results"
            where = Path(results).expanduser()
            where.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix="operator-", dir=where), f"auto{_SUFFIX}")
        write_file(self.path, state)

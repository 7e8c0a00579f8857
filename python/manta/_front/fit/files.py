# SPDX-License-Identifier: Apache-2.0
"""Directories of checkpoints on their way: moved where they may be, else cloned, else copied."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

_FICLONE = 0x40049409  # ioctl: the same blocks, until one of the two is written to


def clone(source: Path, to: Path) -> None:
    """All that is in `source` into `to`, beside what is there. Files share their blocks where the
    file system can do that."""
    shutil.copytree(source, to, symlinks=True, dirs_exist_ok=True, copy_function=_clone_file)


def _clone_file(source: str, to: str) -> str:
    with open(source, "rb") as read, open(to, "wb") as write:
        try:
            fcntl.ioctl(write.fileno(), _FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, write, 1 << 20)
    shutil.copystat(source, to)
    return to


def move(source: Path, to: Path) -> None:
    """The same by renaming; `source` stays as an empty directory. On another file system it is
    cloned."""
    mode = stat.S_IMODE(source.stat().st_mode)
    try:
        _move(source, to)
        source.mkdir(mode)
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
        clone(source, to)


def _move(source: Path, to: Path) -> None:
    try:
        os.rename(source, to)
    except OSError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        for entry in list(os.scandir(source)):  # of another rank: beside its files
            if entry.is_dir(follow_symlinks=False):
                _move(Path(entry.path), to / entry.name)
            else:
                os.replace(entry.path, to / entry.name)
        os.rmdir(source)


def is_temporary(path: Path) -> bool:
    """Whether it lies below the directory for temporary files."""
    home = Path(tempfile.gettempdir()).resolve()
    found = path.resolve()
    return found != home and found.is_relative_to(home)

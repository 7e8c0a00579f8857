# SPDX-License-Identifier: Apache-2.0
"""Where experiments are: NAME_0003_2026-01-02_10-11-12 in a directory of results."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from manta import _manta

ERROR_FILE = "error.txt"  # in the directory of a trial: the traceback of its last failure
_RAYS = "~/ray_results"  # where Ray keeps experiments unless told otherwise
ORIGINAL = "TUNE_ORIG_WORKING_DIR"  # in the environment of trials: where the driver works


def directory(storage_path: Any, local_dir: Any, sync_config: Any) -> str | None:
    """Of experiments; None: the default one."""
    upload = getattr(sync_config, "upload_dir", None)
    given = next((g for g in (storage_path, upload, local_dir) if g is not None), None)
    if given is None:
        return None
    text = os.fspath(given).removeprefix("file://")
    if "://" in text:
        name = "SyncConfig(upload_dir=…)" if given is upload else "storage_path"
        raise ValueError(f"{name}: an experiment is written to a directory, not to {text}\nhint: "
                         f"local_dir=… and copy it from there, or a directory where the store is "
                         f"mounted")
    return str(Path(text).expanduser())


def results() -> str:
    return _manta.knob("MANTA_RESULTS") or "~/manta_results"


def found(where: Path, name: str | None) -> str:
    """The newest experiment there, or the newest of that name: a directory, or what it begins
    with."""
    if name is not None and (Path(name).expanduser() / "experiment").is_dir():
        return _owned(Path(name).expanduser())
    newest = _newest(where.expanduser(), name)
    if newest is None:
        raise FileNotFoundError(f"there is no experiment {name or ''} in {where}\nhint: tune.run("
                                f"…, name=…, local_dir=…) as it began")
    return _owned(newest)


def located(path: str | os.PathLike[str]) -> Path | None:
    """The experiment at that path. One at STORAGE/NAME is also the newest of that name in STORAGE:
    programs for Ray put the path together from what they have given. None: there is none."""
    where = Path(path).expanduser().resolve()
    if (where / "experiment").is_dir():
        return where
    above = where.parent
    if above == Path(_RAYS).expanduser() and not above.exists():
        above = Path(results()).expanduser()
    return _newest(above, where.name)


def _newest(where: Path, name: str | None) -> Path | None:
    named = name and re.sub(r"[^A-Za-z0-9._-]", "-", name)  # as its directory is
    there = [p.parent for p in where.glob("*/experiment")
             if named is None or p.parent.name == named or _plain(p.parent.name) == named]
    return max(there, key=lambda p: (p / "experiment").stat().st_mtime_ns, default=None)


def _owned(directory: Path) -> str:
    """Its checkpoints are unpickled by those who go on with it."""
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user: its checkpoints may run what "
                              f"that user has put into them")
    return str(directory)


def _plain(directory: str) -> str:
    """train_0003_2026-01-02_10-11-12: train"""
    return re.sub(r"_\d{4,}_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$", "", directory)

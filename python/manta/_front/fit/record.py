# SPDX-License-Identifier: Apache-2.0
"""What a trainer leaves in the directory of its experiment, so that another process can go on."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path
from typing import Any

import cloudpickle

from manta import _manta

RECORD = "trainer.pkl"


def write(experiment: Path, arguments: dict[str, Any], uri: str | None = None) -> None:
    """The arguments of a trainer. One that cannot be pickled is left out: restore() asks for it.
    uri: where the experiment is stored besides."""
    kept: dict[str, bytes] = {}
    for name, value in arguments.items():
        try:
            kept[name] = cloudpickle.dumps(value)
        except Exception:
            pass
    experiment.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = experiment / f".{RECORD}-{os.getpid()}"
    temporary.write_bytes(pickle.dumps(kept))
    os.replace(temporary, experiment / RECORD)
    if uri is not None:
        _manta.storage_upload(str(experiment / RECORD), f"{uri}/{RECORD}")


def exists(experiment: Path) -> bool:
    return (experiment / RECORD).is_file()


def read(experiment: Path, given: dict[str, Any], trust: bool) -> dict[str, Any]:
    """The arguments again; those that are given count more, and are not read."""
    if not exists(experiment):
        raise ValueError(f"{experiment} has no {RECORD}: it is not the directory of an experiment\n"
                         f"hint: it is storage_path/name of its RunConfig")
    data = (experiment / RECORD).read_bytes()
    if not trust and not _is_ours(experiment):
        raise PermissionError(f"{experiment / RECORD} may be written by others, and reading it "
                              f"runs the code that its author put into it\n"
                              f"hint: restore(…, trust=True) if it is yours")
    kept = {name: value for name, value in pickle.loads(data).items() if name not in given}
    return {**{name: _loaded(name, value) for name, value in kept.items()}, **given}


def _is_ours(experiment: Path) -> bool:
    """Whether nobody else can write it."""
    found = [p.stat() for p in (experiment, experiment / RECORD)]
    return all(s.st_uid == os.geteuid() and not s.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
               for s in found)


def _loaded(name: str, data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as e:
        raise RuntimeError(f"{name} of the experiment cannot be read here: {type(e).__name__}: "
                           f"{e}\nhint: restore(path, {name}=…)") from e


def newest_run(experiment: Path) -> Path | None:
    """The directory of its last run."""
    runs = sorted(p.parent for p in experiment.glob("*/run.log"))
    return runs[-1] if runs else None

# SPDX-License-Identifier: Apache-2.0
"""A state as files of its own: what save_checkpoint(files=True) leaves beside the checkpoint."""

from __future__ import annotations

import os
import pickle
from typing import Any, Callable, Iterator

from manta import _frameworks
from manta._runtime import travel


def write_files(obj: Any, directory: str) -> None:
    """Each element or entry as a file of its own, on disk when it returns: as a framework that is
    there does it (NAME.pt), else pickled (NAME.pkl)."""
    dump, end = _dumper()
    taken: set[str] = set()
    for key, value in _elements(obj):
        with open(os.path.join(directory, _file_name(key, end, taken)), "xb") as file:
            try:
                dump(value, file)
            except Exception as e:
                raise pickle.PicklingError(f'the entry "{key}" of the checkpoint cannot be a file: '
                                           f"{type(e).__name__}: {e}") from e
            file.flush()
            os.fsync(file.fileno())
    _sync(directory)
    _sync(os.path.dirname(directory))


def _elements(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, dict):
        yield from ((str(key), value) for key, value in obj.items())
    elif isinstance(obj, (list, tuple)):
        yield from ((str(i), value) for i, value in enumerate(obj))
    else:
        yield "checkpoint", obj


def _dumper() -> tuple[Callable[[Any, Any], None], str]:
    found = (tensors.dumper() for tensors in _frameworks.all_tensors())
    return next((dumper for dumper in found if dumper), (travel.dump, ".pkl"))


def _file_name(key: str, end: str, taken: set[str]) -> str:
    """The key, as far as it can be the name of a file."""
    base = "".join(c if c.isalnum() or c in "-_. " else "_" for c in key)[:100].strip(". ") or "_"
    name, n = base, 1
    while name.casefold() in taken:
        n += 1
        name = f"{base}-{n}"
    taken.add(name.casefold())
    return name + end


def _sync(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

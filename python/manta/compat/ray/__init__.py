# SPDX-License-Identifier: Apache-2.0
"""manta by the name ray, for programs written for Ray's training libraries:

    manta run --ray script.py …
    python -m manta.compat.ray [-m module | script] …
    import manta.compat.ray; manta.compat.ray.install()     # in a notebook, before `import ray`

(1) `ray.train` is the module `manta.train`, the very same, and so is every other path; a finder
    resolves them. `ray` itself, `ray.util` and `ray.exceptions` have names of their own.
(2) Nothing else hides a Ray that is installed: without one of these three, `import ray` finds it.
(3) A folder in sys.path has a package `ray` that calls install(). Processes that are given the
    sys.path of this one (spawn, forkserver) find the same ray in it; workers are told by their job.

docs/from-ray.md lists the names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from manta.compat.ray.finder import Finder

PATH = str(Path(__file__).parent / "path")  # has the package of (3)

_finder = Finder()


def install() -> None:
    """From here on `import ray` gives manta, in this process and in its workers. May be called
    again."""
    if is_installed():
        return
    found = sys.modules.get("ray")
    if found is not None and not _is_ours(getattr(found, "__file__", None)):
        raise RuntimeError("ray was imported before manta.compat.ray.install()\n"
                           "hint: call it first, in a notebook after a restart of the kernel")
    sys.meta_path.insert(0, _finder)
    if PATH not in sys.path:
        sys.path.insert(1, PATH)  # the first entry is the folder of the script
    if found is not None:  # the package of (3), which is being imported
        del sys.modules["ray"]
        sys.modules["ray"] = __import__("ray")


def _is_ours(file: str | None) -> bool:
    return file is not None and Path(file).parent.parent == Path(PATH)


def is_installed() -> bool:
    return _finder in sys.meta_path

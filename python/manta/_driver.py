# SPDX-License-Identifier: Apache-2.0
"""The driver's process: what it is called, what its workers are forked from, its end."""

from __future__ import annotations

import atexit
import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any

from manta import _manta

Program = tuple[list[str], list[str]]  # command line, environment

_embedded = False

# Before the fork there must be no second thread, or workers have to be started anew: numpy's BLAS
# starts its own when it is loaded.
_ONE_THREAD = ["OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"]


def embed() -> None:
    """Tells libmanta, once, that this process is a driver, and how `manta resume` runs it again."""
    global _embedded
    if _embedded:
        return
    _manta.embed([sys.executable, *sys.orig_argv[1:]])
    atexit.register(_manta.release)
    _embedded = True


# In one line: ps shows it.
_SERVE = ("import sys, importlib.util as u; sys.path.append({home!r}); u.find_spec('manta') or "
          "sys.exit('manta: not installed, and not in ' + sys.path[-1] + ' on this host'); "
          "from manta._zygote import main; main()")


def program(framework: str) -> Program:
    """The interpreter that forks workers, with `framework` ("torch" or "none") imported."""
    import subprocess

    if framework != "none" and choose_framework(None) != framework:
        raise ModuleNotFoundError(f"{framework} is not installed for {sys.executable}\n"
                                  f"hint: pip install {framework}; or Trainer(backend=None), which "
                                  f"needs none", name=framework)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    home = str(Path(__file__).absolute().parent.parent)
    code = _SERVE.format(home=home)
    env = list(_ONE_THREAD)
    if framework != "none" and (cure := _manta.amx_cure()):
        env.append(cure)
        _tell_cure(cure)
    return [sys.executable, *flags, "-P", "-c", code, framework], env


_told_cure = False


def _tell_cure(cure: str) -> None:
    """Once, and not to those who have set it themselves."""
    global _told_cure
    if not _told_cure and cure.split("=")[0] not in os.environ:
        _told_cure = True
        print(f"manta: this CPU misreports AMX, on which bf16 work dies: workers get {cure} "
              f"(`manta doctor` explains)", file=sys.stderr)


def prestart(framework: str | None = None, threads: int = 0) -> None:
    """Starts what workers are forked from now, beside the imports that follow. On other hosts
    (MANTA_HOSTS) a trainer does that."""
    embed()
    if os.environ.get("MANTA_HOSTS"):
        return
    _manta.prestart(program(choose_framework(framework)), threads or threads_of(None))


def choose_framework(name: str | None) -> str:
    """"torch" if it is asked for or there, without importing it; else "none"."""
    if name is not None:
        return name
    from importlib.util import find_spec
    return "torch" if find_spec("torch") else "none"


def threads_of(cpus: float | None) -> int:
    """OpenMP threads of a worker: as many as its CPUs; 0: as the environment says."""
    if cpus is None and "OMP_NUM_THREADS" in os.environ:
        return 0
    return max(1, int(cpus or 1))


trainers: weakref.WeakSet[Any] = weakref.WeakSet()  # that were not closed


def init(num_cpus: float | None = None, num_gpus: float | None = None,
         resources: dict[str, float] | None = None) -> None:
    """Declares what this host has to give to workers, whatever it really has. Before the first
    trainer."""
    if trainers:
        raise RuntimeError("manta.init() must come before the first trainer")
    _manta.release()  # an agent that was started ahead has counted already
    for name, value in (("MANTA_NUM_CPUS", num_cpus), ("MANTA_NUM_GPUS", num_gpus)):
        if value is not None:
            os.environ[name] = str(value)
    if resources is not None:
        os.environ["MANTA_RESOURCES"] = json.dumps(resources)


def shutdown() -> None:
    """Ends what no trainer uses any more."""
    _manta.release()

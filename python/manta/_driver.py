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
    env: list[str] = []
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


def prestart(framework: str | None = None) -> None:
    """Starts what workers are forked from now, beside the imports that follow:

        import manta
        manta.prestart()     # first in the script
        import torch, …      # meanwhile

    A trainer does the same when it is made; its first workers are there sooner the earlier this
    begins. framework: "torch" or "none"; None: torch if it is installed. It returns at once, and
    may be called again. On other hosts (MANTA_HOSTS) a trainer does it."""
    embed()
    if os.environ.get("MANTA_HOSTS"):
        return
    _manta.prestart(program(choose_framework(framework)), 0)


def choose_framework(name: str | None) -> str:
    """"torch" if it is asked for or there, without importing it; else "none"."""
    if name is not None:
        return name
    from importlib.util import find_spec
    return "torch" if find_spec("torch") else "none"


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

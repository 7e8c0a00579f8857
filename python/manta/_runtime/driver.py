# SPDX-License-Identifier: Apache-2.0
"""The driver's process: what it is called, what its workers are forked from, its end."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import manta
from manta import _frameworks, _manta

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
          "from manta._runtime.zygote import main; main()")


def program(framework: str) -> Program:
    """The interpreter that forks workers, with a framework, or "none", imported."""
    import subprocess

    known = _frameworks.get(framework)
    if not _frameworks.is_installed(framework):
        raise ModuleNotFoundError(f"{framework} is not installed for {sys.executable}\n"
                                  f"hint: {known.how_to_install()}; or Trainer(backend=None), "
                                  f"which needs none", name=framework)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    home = str(Path(manta.__file__).absolute().parent.parent)
    code = _SERVE.format(home=home)
    env = [f"{name}={os.environ.get(name, value)}" for name, value in known.environment().items()]
    if known.uses_onednn and (cure := _manta.amx_cure()):
        env.append(cure)
        _tell_cure(cure)
    return [sys.executable, *flags, "-P", "-c", code, framework], env


_told_cure = False


def _tell_cure(cure: str) -> None:
    """Once, and not to those who have set it themselves."""
    global _told_cure
    if not _told_cure and cure.split("=")[0] not in os.environ:
        _told_cure = True
        print(f"manta: this CPU misreports AMX, and bf16 would crash: workers get {cure} "
              f"(`manta doctor` explains)", file=sys.stderr)


def prestart(framework: str | None = None) -> None:
    """Starts what workers are forked from now, beside the imports that follow:

        import manta
        manta.prestart()     # first in the script
        import torch, …      # meanwhile

    A trainer does the same when it is made; its first workers are there sooner the earlier this
    begins. framework: its name, or "none"; None: that of backend="auto". It returns at once, and
    may be called again. On other hosts (MANTA_HOSTS) a trainer does it."""
    embed()
    if _manta.knob("MANTA_HOSTS"):
        return
    name = _frameworks.automatic() if framework is None else framework
    _manta.prestart(program(name), 0)


trainers: weakref.WeakSet[Any] = weakref.WeakSet()

_initialized = False  # there was an init() or a trainer, and no shutdown() since
_before: dict[str, str | None] = {}  # environment, as it was before init()

# Of ray.init(), for things that manta does not have.
_IGNORED = frozenset((
    "labels", "object_store_memory", "local_mode", "include_dashboard", "dashboard_host",
    "dashboard_port", "job_config", "configure_logging", "logging_level", "logging_format",
    "logging_config", "log_to_driver", "namespace", "runtime_env", "storage", "redis_password",
    "enable_resource_isolation", "cgroup_path", "system_reserved_cpu", "system_reserved_memory",
    "webui_host", "include_webui", "plasma_directory", "num_redis_shards", "redis_address",
    "node_ip_address", "temp_dir", "redis_max_memory", "lru_evict"))


def init(address: str | None = None, *, num_cpus: float | None = None,
         num_gpus: float | None = None, resources: dict[str, float] | None = None,
         ignore_reinit_error: bool = False, **others: Any) -> None:
    """Declares what this host has to give to workers, whatever it really has. Not needed before a
    trainer, which starts what it needs; while workers run it is an error, unless
    ignore_reinit_error says that what was declared before stays.

    address: None, "local" or "auto": this host. Further arguments of ray.init() are ignored, which
    a warning says."""
    global _initialized
    check_address(address)
    declared = _declaration(num_cpus, num_gpus, resources)
    _ignore(others)
    if any(t._has_workers() for t in trainers):
        if ignore_reinit_error:
            return
        raise RuntimeError("manta.init() while workers of a trainer run: they were counted "
                           "already\nhint: trainer.shutdown() or manta.shutdown() first, or "
                           "ignore_reinit_error=True")
    _manta.release()  # an agent that was started ahead has counted already
    for name, value in declared.items():
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value
    _initialized = True


def is_initialized() -> bool:
    """Whether there was an init() or a trainer, and no shutdown() since."""
    return _initialized


def note_trainer(trainer: Any) -> None:
    global _initialized
    _initialized = True
    trainers.add(trainer)


def shutdown() -> None:
    """Ends the workers of all trainers and what they were forked from, and forgets what init()
    declared. Idempotent; a trainer that is used afterwards starts anew."""
    global _initialized
    for trainer in list(trainers):
        trainer.shutdown()
    _manta.release()
    for name, value in _before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    _before.clear()
    _initialized = False


def check_address(address: Any) -> None:
    if address not in (None, "local", "auto"):
        raise ValueError(f"address={address!r} is not in this version of manta\nhint: None, "
                         f"'local' or 'auto' is this host; others go into "
                         f"Trainer(hosts=[Host(…), …]) or MANTA_HOSTS")


def _declaration(cpus: Any, gpus: Any, resources: Any) -> dict[str, str]:
    """As the environment has it."""
    found = {}
    for name, variable, value in (("num_cpus", "MANTA_NUM_CPUS", cpus),
                                  ("num_gpus", "MANTA_NUM_GPUS", gpus)):
        if value is not None:
            _check_number(name, value)
            found[variable] = str(value)
    if resources is not None:
        if not isinstance(resources, dict):
            raise TypeError(f"resources must be a dict such as {{'disk': 2}}, not {resources!r}")
        for key, value in resources.items():
            if key in ("CPU", "GPU"):
                raise ValueError(f"resources has {key!r}\nhint: it is num_{key.lower()}s={value!r}")
            _check_number(f"resources[{key!r}]", value)
        import json
        found["MANTA_RESOURCES"] = json.dumps(resources)
    return found


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name} must be a number >= 0, not {value!r}")


def _ignore(others: dict[str, Any]) -> None:
    from manta import _names
    given = {k: v for k, v in others.items() if v is not None}
    for name in others:
        if name not in _IGNORED and not name.startswith("_"):
            raise TypeError(_names.unknown("init", name, ("address", "num_cpus", "num_gpus",
                                                          "resources", "ignore_reinit_error")))
    if given:
        import warnings
        warnings.warn(f"manta.init() ignores {', '.join(given)}: they mean nothing in manta",
                      stacklevel=3)

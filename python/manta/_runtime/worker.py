# SPDX-License-Identifier: Apache-2.0
"""A worker's process: what surrounds the user's function. Called by the extension, by name."""

from __future__ import annotations

import contextlib
import gc
import importlib
import mmap
import os
import pickle
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from manta import _frameworks, _manta
from manta._runtime import logs, main, pickling, raised, shared, terminal

if TYPE_CHECKING:
    from manta._runtime.job import Job

broken: BaseException | None = None  # why the framework could not be imported
warm_up: Callable[[], None] | None = None  # loads what later workers want, in what forks them
instance: Any = None  # of the class API
job: Job | None = None  # the one that runs, or ran last
own_gpus = ""  # that this worker has reserved, as in CUDA_VISIBLE_DEVICES
_threads = ""  # as many as this process, which is forked, computes with
_begun = False  # this process was forked from one that has begun the job
_loaded: tuple[bytes, Job] | None = None  # a payload that comes again, and its job
_needed: mmap.mmap | None = None  # shared with trials: one of them has warmed up by itself
_has_signals = False  # as Python's processes have them
_hooked = 0  # the trainer's hook of this number has been called in this process
_set_by_hook: dict[str, str | None] = {}  # in the environment; None: removed
_setters: list[Callable[[int], Any]] | None = None  # of the number of threads

# As numpy and scipy, and distributions, name it.
_SETTERS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
            "openblas_set_num_threads64_", "openblas_set_num_threads")


# --- values ---------------------------------------------------------------------------------------


def dump(o: Any) -> tuple[bytes, str]:
    """What has no counterpart in C: its pickle, and something to read."""
    text = repr(o)
    return pickling.dumps_unwrapped(o), text if len(text) <= 200 else text[:197] + "..."


def load(data: bytes) -> Any:
    return pickle.loads(data)


# --- a job ----------------------------------------------------------------------------------------


def born() -> None:
    """In a new worker, before its first job. Its output is a pipe, which Python would fill in
    blocks."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    setattr(os, "_exit", _exit_of(os.getpid(), os._exit))
    draw_anew()


def _exit_of(pid: int, exit_now: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """os._exit of a worker, not of its children: with status 0 the train function has ended well.
    What ends the process from C is a death still."""
    def _exit(status: int) -> NoReturn:
        if status == 0 and os.getpid() == pid:
            _manta.leave()  # comes back if no function is running
        exit_now(status)
    return _exit


def draw_anew() -> None:
    """Random numbers as a process that was started by itself has them: a fork has copied the
    generators, and all ranks would draw the same. (The module random sees to itself.)"""
    if broken is not None:
        return
    for framework in _frameworks.imported():
        framework.reseed()
    if random := sys.modules.get("numpy.random"):
        random.seed()


def warm() -> None:
    """In the successor of what forks workers, before it takes over; not after a failure."""
    from manta._runtime import zygote
    if warm_up is not None:
        zygote.at_low_priority(warm_up)


def take_signals() -> None:
    """Before the first job: libmanta has reset all signals since this process was born, also those
    that Python ignores, so that a closed pipe is an error."""
    global _has_signals
    if not _has_signals:
        _has_signals = True
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)


def take_environment() -> None:
    """os.environ is a copy, made when the interpreter started."""
    data = os.environ._data  # type: ignore[attr-defined]
    data.clear()
    data.update(_manta.environment())
    if any(framework.uses_onednn for framework in _frameworks.imported()):
        cure_amx()


def cure_amx() -> None:
    """The CPU of this host may need what the driver's does not."""
    if cure := _manta.amx_cure():
        os.environ.setdefault(*cure.split("=", 1))


def compute_with(threads: str) -> None:
    """What was loaded before the fork computes with one thread, until it is told the number."""
    first = threads.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        return
    for framework in _frameworks.imported():
        framework.set_threads(int(first))
    blas = os.environ.get("OPENBLAS_NUM_THREADS", first)
    for set_threads in blas_setters() if blas.isdecimal() and int(blas) > 0 else ():
        set_threads(int(blas))


def blas_setters() -> list[Callable[[int], Any]]:
    """Of every OpenBLAS that is loaded; looked for once, where workers are forked."""
    global _setters
    if _setters is None and "numpy" in sys.modules:
        import ctypes
        with open("/proc/self/maps") as maps:
            files = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
        libraries = [ctypes.CDLL(f) for f in sorted(files)]
        _setters = [getattr(lib, name) for lib in libraries for name in _SETTERS
                    if hasattr(lib, name)]
    return _setters or []


def run() -> Any:
    """One call of a train function: the payload says which and around what."""
    begin()
    if (threads := os.environ.get("OMP_NUM_THREADS", "")) != _threads:
        compute_with(threads)
    try:
        job = job_of(_manta.payload())
        prepare(job)
        return job()
    finally:
        flush()
        if _needed is not None and _is_warm():
            _needed[0] = 1


def begin() -> None:
    """What every job begins with, in a process that did not do it before it was forked."""
    global _begun
    if not _begun:
        take_signals()
        take_environment()
        if broken is not None:
            raise broken
        terminal.take()
    _begun = False


def job_of(payload: Any) -> Job:
    """The job that a payload holds. A trial finds the one of the trial before it: in a worker that
    was forked for it, or serves one after the other."""
    global _loaded
    given = memoryview(payload)
    if _loaded is not None and given == _loaded[0]:
        return _loaded[1]
    _loaded = None
    header, body = pickle.loads(given)
    take(header)
    where = header.get("shared")
    found: Job = pickle.loads(body) if where is None else shared.load(where)
    main.define_rest()
    if header.get("again"):
        _loaded = bytes(given), found
    return found


def prepare_forks(payload: Any) -> None:
    """In a worker, before it is forked for a trial: what trials share is loaded once. What fails
    here fails in the trial again, which says so."""
    global _begun, _threads
    known = _loaded
    try:
        begin()
        _begun = True
        job_of(payload)
    except BaseException:
        return
    _warm_for_trials()
    if _loaded is known:
        return
    if os.environ.get("OMP_NUM_THREADS") == "1":  # others may be threads, which a fork has not
        compute_with("1")
        _threads = "1"
    importlib.import_module("manta._runtime.ending").prepare()
    gc.collect()
    gc.freeze()


def _is_warm() -> bool:
    return all(framework.is_warm() for framework in _frameworks.imported())


def _warm_for_trials() -> None:
    """This process was forked before the optional imports were done, and stays for many trials. If
    one of them has needed those, it does them for all that follow."""
    global _needed
    if warm_up is None or _is_warm():
        return
    if _needed is None:
        _needed = mmap.mmap(-1, 1)
    elif _needed[0]:
        _needed[0] = 0
        with contextlib.suppress(Exception):  # else each trial does, and says what fails
            warm_up()
        gc.collect()
        gc.freeze()


def take(header: dict[str, Any]) -> None:
    """Becomes like the process that `job.header` was called in."""
    sys.path[:] = header["path"]
    sys.argv[:] = header["argv"]
    if header["ray"]:
        importlib.import_module("manta.compat.ray").install()
    logs.take(header["logging"])
    main.install(header["main"], header["rest"])


def flush() -> None:
    """What the user has closed or replaced is left alone."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


def prepare(new: Job) -> None:
    """Before a job's function is called."""
    global job, own_gpus, _hooked
    job = new
    if not new.setting.gpus:  # what was not reserved is another's
        if os.environ.get("CUDA_VISIBLE_DEVICES") != "":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
    own_gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if new.setting.hook is not None and _hooked != new.setting.hook_number:
        before = dict(os.environ)
        new.setting.hook()
        _hooked = new.setting.hook_number
        _note_environment(before)
    else:
        _keep_environment()


def _note_environment(before: dict[str, str]) -> None:
    """What the hook has changed in it: every job begins with that of the driver."""
    now = os.environ
    _set_by_hook.update({name: now.get(name) for name in {*before, *now}
                         if now.get(name) != before.get(name)})


def _keep_environment() -> None:
    for name, value in _set_by_hook.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# --- failures -------------------------------------------------------------------------------------


def status_of(e: BaseException) -> int:
    """A failure that only follows from a lost peer is called by that name."""
    for kind, status in ((_manta.Preempted, _manta.EPREEMPTED),
                         (_manta.PeerLost, _manta.EPEERLOST), (_manta.Aborted, _manta.EABORTED)):
        if isinstance(e, kind):
            return status
    if isinstance(e, Exception) and is_echo(e):
        return _manta.EPEERLOST
    retried = job is None or not job.setting.retry or isinstance(e, job.setting.retry)
    return _manta.EUSER if retried else _manta.EINVAL  # EINVAL is final


def is_echo(e: Exception) -> bool:
    """Whether a peer is gone: a framework's own collectives may know of it before we do."""
    waits = 20 if _may_be_echo(e) and _manta.place()[1] > 1 else 0
    for i in range(waits + 1):
        try:
            _manta.check()
        except (_manta.PeerLost, _manta.Aborted):
            return True
        if i < waits:
            time.sleep(0.01)
    return False


def _may_be_echo(e: BaseException) -> bool:
    return any(isinstance(e, framework.peer_kinds()) and framework.is_peer_error(e)
               for framework in _frameworks.imported())


def explain(e: BaseException) -> tuple[int, str, dict[str, Any]]:
    """(status, message, what the driver makes the exception of)."""
    status = status_of(e)
    if status in (_manta.EUSER, _manta.EINVAL) and _may_be_echo(e) and (
            (rank := _manta.departed()) >= 0):
        e.add_note(f"rank {rank} has left its train function: this one may have waited for it")
    try:
        last = "".join(traceback.format_exception_only(e)).strip()
    except Exception:  # its class has no words
        last = f"{type(e).__name__}: {raised.text_of(e)}"
    if isinstance(e, _manta.Error):  # the driver names it again
        last = str(e)
    return status, raised.plain(last), {"error": raised.dumps(e)}

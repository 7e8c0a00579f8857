# SPDX-License-Identifier: Apache-2.0
"""The end of a process that serves one trial: what the trial has left to be done at the exit of its
process is done, and nothing of what the process was forked with."""

from __future__ import annotations

import atexit
import faulthandler
import functools
import gc
import io
import logging
import os
import signal
import sys
import threading
import time
import weakref
from types import FrameType, ModuleType
from typing import Any, NoReturn

from manta import _manta

LIMIT_S = 10.0  # for all of it
_MORE_S = 5.0  # for code that no exception gets into; then the process is ended
_STEP_S = 0.2  # for each function after the limit

# From 3.14 on the functions that are called are chosen before the first of them is.
_STOPS = sys.version_info < (3, 14)

_handlers: list[Any] = []  # of logging, that trials are forked with
_of_trial = False  # this process ends with a trial


class TookTooLong(Exception):
    """What an exit function gets that does not end."""


def prepare() -> None:
    """In a process that is about to be forked for trials. It calls the exit functions that are
    there, and trials do not."""
    if _STOPS:
        atexit.register(_stop_here)
    else:
        os.register_at_fork(after_in_child=functools.partial(_forget, os.getpid()))
    _handlers[:] = logging._handlerList  # type: ignore[attr-defined]
    _manta.watch_ending((
        atexit._ncallbacks, threading._active,  # type: ignore[attr-defined]
        weakref.finalize._registry, logging._handlerList,  # type: ignore[attr-defined]
        *((util._finalizer_registry, process._children) if (util := _loaded("util")) and
          (process := _loaded("process")) else ())))


def end() -> None:
    """When the function of a trial is over, and _manta.ending_left()."""
    global _of_trial
    _of_trial = True
    _do_all()
    for o in gc.get_objects():  # those since the fork: all others are frozen
        if isinstance(o, io.IOBase):
            _flush(o)


def _stop_here() -> None:
    """All that were registered before this one are not called."""
    if _of_trial:
        atexit._clear()


def _forget(worker: int) -> None:
    if os.getppid() == worker:
        atexit._clear()


def _loaded(name: str) -> Any:
    return sys.modules.get(f"multiprocessing.{name}")


def _do_all() -> None:
    """In the order of an interpreter that ends: threads, then exit functions, the newest first."""
    by = time.monotonic() + LIMIT_S
    watched = threading.current_thread() is threading.main_thread()
    if watched:
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S, _STEP_S)
    faulthandler.dump_traceback_later(LIMIT_S + _MORE_S, exit=True, file=2)
    try:
        _join_threads(by)
        atexit._run_exitfuncs()
        _end_inherited(_loaded("util"))
    except TookTooLong as e:
        _say(str(e))
    finally:
        if watched:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
        faulthandler.cancel_dump_traceback_later()


def _end_inherited(util: ModuleType | None) -> None:
    """What modules do at the exit that were imported before the fork, with what was made since."""
    if util is not None:
        util._exit_function()
    weakref.finalize._exitfunc()  # type: ignore[attr-defined]
    logging.shutdown([h for h in logging._handlerList  # type: ignore[attr-defined]
                      if h not in _handlers])


def _too_long(number: int, frame: FrameType | None) -> NoReturn:
    raise TookTooLong(f"what the trial has left to be done at its exit took longer than "
                      f"{LIMIT_S:g} s")


def _say(text: str) -> None:
    try:
        print(f"manta: {text}", file=sys.stderr)
    except (AttributeError, OSError, ValueError):
        pass


def _join_threads(by: float) -> None:
    """Those that are no daemons, as concurrent.futures is told to end its own."""
    for call in reversed(getattr(threading, "_threading_atexits", [])):
        call()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, by - time.monotonic()))


def _flush(file: io.IOBase) -> None:
    try:
        if not file.closed and file.writable():
            file.flush()
    except Exception:  # it is the user's, and nobody is there to be told
        pass

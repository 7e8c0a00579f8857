# SPDX-License-Identifier: Apache-2.0
"""What workers are forked from: an interpreter that has imported what they need, and nothing of the
user's. It has one thread, has run no parallel region and has not looked for a GPU, so that its
copies can do all that."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Callable, NoReturn

from manta import _frameworks, _manta
from manta._runtime import worker

if TYPE_CHECKING:
    from manta._frameworks.base import Framework

LOW_PRIORITY = 3  # nice level of a warm-up: at most half of a CPU that a worker uses

# Before the fork there must be no second thread, or workers have to be started anew: numpy's BLAS
# starts its own when it is loaded. A worker raises the number.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def load_own() -> None:
    """What every job needs of ours: to import it took most of a worker's way to its function."""
    import cloudpickle  # noqa: F401
    import manta._runtime.job  # noqa: F401
    import manta._state  # noqa: F401
    for front in manta._FRONTS:
        importlib.import_module(f"manta.{front}")


def load(framework: Framework) -> None:
    if framework.uses_onednn:
        worker.cure_amx()
    if framework.name != "none":  # numpy may come with it
        for name in ONE_THREAD:
            os.environ.setdefault(name, "1")
    framework.load()
    worker.blas_setters()


def keep(load: Callable[[], None]) -> None:
    """Loads for good. Collections meanwhile would find nothing, and take a sixth of torch's time;
    later ones, in a worker, would touch and so copy every page: what is there is left out. Nor does
    a worker take it apart at its end: torch's operators alone are 193 finalizers, and 90 ms."""
    gc.disable()
    try:
        load()
    finally:
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            finalizer.atexit = False
        gc.freeze()
        gc.enable()


def at_low_priority(load: Callable[[], None]) -> None:
    """Loads for good, and yields to the workers that train meanwhile. In a thread of its own, which
    is gone afterwards: workers inherit the priority of the one that forks them, and only the
    superuser may raise one again."""
    failed: list[BaseException] = []

    def body() -> None:
        me = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, me)
        os.setpriority(os.PRIO_PROCESS, me, min(nice + LOW_PRIORITY, 19))
        try:
            keep(load)
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=body, name="warm-up")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def end() -> NoReturn:
    """The end of a worker, as multiprocessing's: to take apart what was imported would copy it
    first, 300 ms and 100 MB of torch."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    worker.flush()
    os._exit(0)


def main() -> NoReturn:
    """Forks workers. In each of them serve() comes back when its work is over."""
    if not _manta.serving():
        sys.exit("manta._runtime.zygote is started by manta, not by hand")
    try:
        keep(load_own)
        framework = _frameworks.get(sys.argv[1])
        keep(lambda: load(framework))
    except Exception as e:
        worker.broken = e  # a worker says so, where somebody reads it
    else:
        worker.warm_up = framework.warm if framework.warms else None
    _manta.serve(sys.orig_argv, worker.warm_up is not None)
    end()

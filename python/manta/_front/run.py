# SPDX-License-Identifier: Apache-2.0
"""A run: rows on their way to callbacks and to a loop, its end."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Iterator, TypeVar

from manta import _manta
from manta._front.callbacks import Caller
from manta._front.sinks import SinkCallback, is_fed
from manta._names import public
from manta._runtime import frames

T = TypeVar("T")

EXIT_PREEMPTED = 75  # EX_TEMPFAIL: `manta resume` goes on


@public
class Reports(list[Any]):
    """The reports of one iteration, one dict per rank; by name, those of rank 0."""

    def keys(self) -> Any:
        return self[0].keys()

    def __getitem__(self, key: Any) -> Any:
        return list.__getitem__(self, 0)[key] if isinstance(key, str) else list.__getitem__(
            self, key)


_open: weakref.WeakSet[Run] | None = None  # runs that were not closed; None: there was none yet


def _close_open() -> None:
    """At the interpreter's end, while callbacks can still be called."""
    for run in list(_open or ()):
        run.close()


def _note(run: Run) -> None:
    global _open
    if _open is None:
        _open = weakref.WeakSet()
        atexit.register(_close_open)  # after the trainers', so it is called before them
    _open.add(run)


class Run:
    """One run, from its start to its end; whoever makes it closes it."""

    def __init__(self, start: Callable[[], _manta.Run], trainer: _manta.Trainer,
                 callbacks: list[Any]):
        self._process = os.getpid()
        self._closed = False
        self._trainer = trainer
        self._sinks: list[SinkCallback] = [c for c in callbacks if is_fed(c)]
        self._caller = Caller([c for c in callbacks if not is_fed(c)])
        self._told = not self._caller.callbacks  # of the end
        self._notices = Notices(trainer)
        self._uri = trainer.storage()
        self._run = start()
        self.directory = trainer.run_dir()
        _note(self)

    def begin(self, config: Any, workers: int) -> None:
        self._notices.begin()
        for sink in self._sinks:
            sink._attach(self.directory)
        self._caller.start(logdir=self.directory, config=config, num_workers=workers)

    def next(self) -> Reports | None:
        """The next iteration, or None at the end; raises what ended the run."""
        item = self._wait(self._run.next)
        if item is None:
            self.finish(error=False)
            return None
        return self._deliver(*item)

    def linger(self, seconds: float) -> None:
        """Goes on for so long; reports that come are dropped."""
        try:
            self._run.next(seconds)
        except TimeoutError:
            pass

    def _deliver(self, rows: list[Any], iteration: int, rewound_to: int,
                 complete: bool) -> Reports:
        info = {"iteration": iteration, "complete": complete}
        if rewound_to >= 0:
            info["rewound_to"] = rewound_to
        reports = Reports(rows)
        self._caller.result(reports, info)
        return reports

    def drain(self) -> None:
        """To the end; without a callback that wants them nobody looks at the rows."""
        if self._caller.listens():
            while self.next() is not None:
                pass
            return
        self._wait(self._run.drain)
        self.finish(error=False)

    def _wait(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BaseException as e:
            error = self._ended_by(e)
        raise error  # not in the handler: its context is its own

    def _ended_by(self, e: BaseException) -> BaseException:
        """What to raise for it."""
        if isinstance(e, KeyboardInterrupt):
            self._run.tell_stop()
        self.finish(error=True)
        if isinstance(e, _manta.Preempted):
            print(f"manta: {e}", file=sys.stderr)
            e.code = EXIT_PREEMPTED
        if isinstance(e, _manta.WorkerLost):
            self._trainer.shutdown()
        if not hasattr(e, "detail"):
            return e
        log = Path(self.directory, "logs", f"rank-{getattr(e, 'rank', -1)}.log")
        from manta._runtime import errors
        return errors.of_worker(e, str(log) if self.directory and log.exists() else "")

    def finish(self, error: bool) -> None:
        if not self._told:
            self._told = True
            self._caller.finish(error=error)

    def finished(self) -> bool:
        return self._run.finished()

    def results(self) -> list[Any] | None:
        return self._run.results()

    def close(self) -> None:
        """Ends it if it is going on. Idempotent; nothing in a forked child, whose run it isn't."""
        if self._closed or os.getpid() != self._process:
            return
        self._await_storage()
        self._run.close()
        self._closed = True
        self._notices.end()
        self.finish(error=True)


    def _await_storage(self) -> None:
        """Until a finished run is stored, if it is to be; Ctrl-C ends the waiting."""
        if self._uri is None or not self._run.finished():
            return
        wait = _manta.knob("MANTA_UPLOAD_WAIT")
        by = time.monotonic() + wait
        try:
            if not self._run.stored(min(2, wait)):
                print(f"manta: the last files of the run are still being uploaded to {self._uri}",
                      file=sys.stderr)
                while not self._run.stored(0.2) and time.monotonic() < by:
                    pass
        except KeyboardInterrupt:
            pass


class RunIterator(Iterator[Reports]):
    """A run row by row. Leaving the loop early ends the run."""

    def __init__(self, run: Run, done: Callable[[], None]):
        self._run: Run | None = run
        self._done = done
        self._results: list[Any] | None = None

    def __iter__(self) -> RunIterator:
        return self

    @frames.folded
    def __next__(self) -> Reports:
        if self._run is None:
            raise StopIteration
        try:
            item = self._run.next()
        except BaseException:
            self.close()
            raise
        if item is None:
            self._results = self._run.results()
            self.close()
            raise StopIteration
        return item

    def is_finished(self) -> bool:
        """Whether the run is over and all its reports were taken."""
        if self._run is not None and self._run.finished():
            next(self, None)
        return self._run is None

    def get_returns(self, force: bool = False) -> list[Any] | None:
        """The return values by rank; None until it is finished, unless `force` runs it to its
        end."""
        if force:
            for _ in self:
                pass
        return self._results if self.is_finished() else None

    get_final_results = get_returns

    def close(self) -> None:
        """Ends the run if it is going on: its workers leave, and it can be resumed."""
        run, self._run = self._run, None
        if run is not None:
            run.close()
            self._done()

    def __del__(self) -> None:
        if hasattr(self, "_run"):
            self.close()


class Notices:
    """While a run goes on, SIGTERM asks it to save and return. Only where nobody else handles it,
    and only on the main thread; a second one kills as ever."""

    def __init__(self, trainer: _manta.Trainer):
        self._trainer = trainer
        self._before: Any = None
        self._over = False

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread() and self._is_free():
            signal.signal(signal.SIGTERM, self._on_term)
            self._before = signal.SIG_DFL

    def _is_free(self) -> bool:
        now: Any = signal.getsignal(signal.SIGTERM)
        left = getattr(now, "__self__", None)  # by a run that ended on another thread
        return now is signal.SIG_DFL or isinstance(left, Notices) and left._over

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._over:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._trainer.notice()

    def end(self) -> None:
        self._over = True
        if self._before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)  # another thread may not; then as above
            self._before = None

# SPDX-License-Identifier: Apache-2.0
"""What an operation gives back: done already, or on its way."""

from __future__ import annotations

import queue
import threading
import time
from datetime import timedelta
from typing import Any, Callable

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work, _create_work_from_future

from manta import _manta
from manta._runtime.errors import CollectiveTimeout


class _Done(Work):
    """Of an operation that was done before it came back: the same for all."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Any:
        return None

    def result(self) -> list[Tensor]:
        return []


DONE = _Done()


def done(tensors: list[Tensor]) -> Work:
    """The same with a result, for who asks for the future."""
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
    future.set_result(tensors)
    return _create_work_from_future(future)


class Pending(Work):
    """What was started. Buffers live as long as this, which its group keeps until it is over."""

    def __init__(self, works: list[_manta.Work], tensors: list[Tensor], buffers: Any,
                 after: Callable[[], object] | None, completer: Completer,
                 limit: float | None = None):
        """limit: seconds from now in which it has to be over; None: as its group has it."""
        super().__init__()
        self.works = works
        self._tensors = tensors
        self._buffers = buffers
        self._after = after
        self._completer = completer
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._future: Any = None
        self._by = None if limit is None else time.monotonic() + limit

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if timeout > timedelta(0):
            self._look_until(time.monotonic() + timeout.total_seconds())
        elif self._by is not None:
            self._look_until(self._by)
        with self._lock:
            try:
                for w in self.works:
                    w.wait()
            except TimeoutError as e:
                self._error = CollectiveTimeout(str(e))
                raise self._error from None
            except BaseException as e:
                self._error = e
                raise
            if self._after is not None:
                self._after()
            self._after = self._buffers = None
        return True

    def _look_until(self, by: float) -> None:
        while not self.is_completed():
            if time.monotonic() > by:
                raise CollectiveTimeout("the operation timed out: it did not finish within the "
                                        "timeout of wait()")
            time.sleep(0.0002)

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(w.test() for w in self.works)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Any:
        if self._error is None and self.is_completed():
            try:
                self.wait()
            except Exception:
                pass
        return self._error

    def result(self) -> list[Tensor]:
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        return self.works[0].peer()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A failure becomes that of the second future: torch keeps what a callback raises."""
        if self._future is None:
            over: torch.futures.Future[None] = torch.futures.Future()
            self._future = over.then(lambda _: self.result())
            self._completer.add(self, over)
        return self._future


class Completer:
    """Completes futures of works: a thread, if anybody asks for one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Pending, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, work: Pending, future: Any) -> None:
        self._queue.put((work, future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, args=(self._queue,), daemon=True,
                                            name="manta-futures")
            self._thread.start()

    @staticmethod
    def _serve(works: queue.SimpleQueue[tuple[Pending, Any] | None]) -> None:
        while (item := works.get()) is not None:
            work, future = item
            try:
                work.wait()
            except Exception:
                pass  # the future's own callback meets it again
            future.set_result(None)
            del item, work, future

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

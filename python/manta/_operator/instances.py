# SPDX-License-Identifier: Apache-2.0
"""An instance of a class on every worker, which outlives its workers by its state.

The class API of the trainer makes the instances and calls them, and its runtime says how many there
are: every call gets as many workers as there is room for, at most the number asked for, and waits
with growing pauses while there is none. So a call may find other workers than the one before it.

(1) A call reaches the instances only if every worker has one that fits the others. Else it is not
    made: the instances are made again, all of them, and begin from one state.
(2) That state is a survivor's, if there is one; else the one that is kept here.
(3) A worker that dies in a call takes the others with it: nothing of a half-done call is left, and
    whoever tries again begins from the kept state.
(4) What is kept is the newest state or none. A call that may change it without keeping it says so
    (`drop`), so that an old one is never taken for the newest.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Callable

from manta import _manta
from manta._front.trainer import Trainer
from manta._runtime import job, worker
from manta._state.entry import NUMBER


@dataclass(frozen=True)
class Absent:
    """The answer of a worker when not all of them have an instance that fits."""
    has_state: bool


# --- in a worker ----------------------------------------------------------------------------------


def _all(mine: bool) -> bool:
    """Whether it is so on every rank. All of them ask."""
    size = _manta.place()[1]
    if size == 1:
        return mine
    given, found = bytearray([mine]), bytearray(size)
    _manta.comm().allgather(_manta.address(given), _manta.address(found), 1, NUMBER["U8"])
    return all(found)


def call(method: str, *args: Any) -> Any:
    instance = worker.instance
    if not _all(instance is not None and instance.fits()):
        return Absent(instance is not None)
    return getattr(instance, method)(*args)


def state() -> bytes:
    found: bytes = worker.instance.state()
    return found


# --- in the driver --------------------------------------------------------------------------------


class Instances:
    """cls(*args, state) is made on every worker; it has fits() and state()."""

    def __init__(self, trainer: Trainer, cls: type, args: tuple[Any, ...],
                 hook: Callable[[], Any] | None = None):
        self._trainer, self._cls, self._args = trainer, cls, args
        self._hook = hook
        self._kept: bytes | None = None
        self._is_newest = False  # what is kept
        self._is_lost = False  # there is a newer state than the first, and it is not kept
        self.world = 0  # workers of the last call
        self.failures = 0

    def start(self) -> None:
        """The instances are there when it returns."""
        if self._hook is not None:
            self._trainer.start(self._hook)
        self._make()
        self.reach("fits")

    def _make(self) -> None:
        self._trainer.start(self._cls, (*self._args, self._kept))

    def reach(self, method: str, *args: Any) -> list[Any]:
        """What the method gives on every worker, by rank."""
        while True:
            answers = self._trainer._call(call, method, *args)
            self.world = len(answers)
            if not isinstance(answers[0], Absent):
                return answers
            self._renew(answers)

    def _renew(self, answers: list[Absent]) -> None:
        holder = next((rank for rank, a in enumerate(answers) if a.has_state), None)
        if holder is not None:
            self._kept = self._trainer._call(job.on_rank, holder, state)[holder]
        elif self._is_lost:
            raise RuntimeError("the workers were lost, and with them the state of the training, "
                               "which was not kept\nhint: train(max_retries=1) keeps it; load() "
                               "gives the trainer that of a checkpoint")
        self._make()

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        """function() on every worker, beside the instances."""
        return self._trainer._call(function)

    def shutdown(self) -> None:
        self._trainer.shutdown()

    def attempt(self, retries: int, method: str, *args: Any) -> list[Any]:
        """The same; after the loss of a worker again, from the kept state."""
        for left in range(retries, -1, -1):
            try:
                return self.reach(method, *args)
            except _manta.WorkerLost as e:
                self.failures += 1
                if left == 0:
                    raise
                _warn(f"{str(e).splitlines()[0]}\ntrying again from the state before this pass "
                      f"(retries left: {left - 1})")
        raise AssertionError("unreachable")

    # --- the state that is kept -------------------------------------------------------------------

    def keep(self, kept: bytes) -> None:
        """The newest."""
        self._kept, self._is_newest, self._is_lost = kept, True, False

    def touch(self) -> None:
        """A call may have changed the state a little: what is kept is not the newest, and better
        than nothing."""
        self._is_newest = False

    def drop(self) -> None:
        """A call changes it, and does not keep it."""
        self._kept, self._is_newest, self._is_lost = None, False, True

    def newest(self, retries: int = 0) -> bytes:
        """Of rank 0, if it is not kept already."""
        if self._kept is None or not self._is_newest:
            self.keep(self.attempt(retries, "state_of_first")[0])
        assert self._kept is not None
        return self._kept

    def begin_from(self, kept: bytes) -> None:
        """For retries: another state than the newest."""
        self._kept, self._is_newest, self._is_lost = kept, False, False


class Local(Instances):
    """One instance in this process, for a debugger; it is not lost without the program."""

    def __init__(self, cls: type, args: tuple[Any, ...], hook: Callable[[], Any] | None = None):
        super().__init__(None, cls, args, hook)  # type: ignore[arg-type]
        self.world = 1

    def start(self) -> None:
        if self._hook is not None:
            self._hook()
        self.instance = self._cls(*self._args, None)

    def reach(self, method: str, *args: Any) -> list[Any]:
        return [getattr(self.instance, method)(*args)]

    def everywhere(self, function: Callable[[], Any]) -> list[Any]:
        return [function()]

    def shutdown(self) -> None:
        self.instance = None


def _warn(text: str) -> None:
    print(f"manta: warn: {text}", file=sys.stderr)

# SPDX-License-Identifier: Apache-2.0
"""Who has come: the barrier of torch.distributed.monitored_barrier.

Each rank tells rank 0 that it is there, and rank 0 answers all that are: go on, or who is missing.

(1) Calls are numbered. What comes late, of a call that was given up, is told by its number.
(2) A message that was asked for and did not come stays asked for: the next call takes it.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from manta import _manta
from manta._frameworks.torch.process_group.codes import items

ARRIVAL_TAG = _manta.TAG_MAX - 1
ANSWER_TAG = _manta.TAG_MAX - 2
_LOOK_S = 0.0005


class RollCall:
    """Of one group, which is handed to every call: the two would keep each other alive."""

    def __init__(self) -> None:
        self._number = 0
        self._asked: dict[int, tuple[_manta.Work, Tensor]] = {}  # by who is to send

    def call(self, group: Any, timeout: timedelta, wait_all: bool) -> None:
        by = time.monotonic() + timeout.total_seconds()
        self._number += 1
        text = f"{timeout.total_seconds() * 1000:g} ms"
        if group._me:
            self._answer_to_first(group, by, text)
        elif timeout <= timedelta(0):
            raise RuntimeError(f"Rank 0 timed out in monitoredBarrier after {text}")
        else:
            self._call_all(group, by, wait_all, text)

    def forget(self) -> None:
        """The communicator has ended, and with it what was asked for."""
        self._asked.clear()
        self._number = 0

    def _call_all(self, group: Any, by: float, wait_all: bool, text: str) -> None:
        others = range(1, group._n)
        missing = [r for r in others if self._hear(group, r, ARRIVAL_TAG, by) is None]
        for r in others:
            if r not in missing:
                self._tell(group, r, ANSWER_TAG, -1 if missing else 1)
        if not missing:
            return
        if wait_all:
            raise RuntimeError(f"Ranks {', '.join(map(str, missing))} failed to pass "
                               f"monitoredBarrier in {text}")
        raise RuntimeError(f"Rank {missing[0]} failed to pass monitoredBarrier in {text}")

    def _answer_to_first(self, group: Any, by: float, text: str) -> None:
        self._tell(group, 0, ARRIVAL_TAG, 1)
        said = self._hear(group, 0, ANSWER_TAG, by)
        if said == 1:
            return
        why = f"no answer in {text}" if said is None else "another rank did not come"
        raise RuntimeError(f"Rank {group._me} successfully reached monitoredBarrier, but "
                           f"received errors while waiting for send/recv from rank 0: {why}; rank "
                           f"0 names the ranks that are missing")

    def _tell(self, group: Any, to: int, tag: int, word: int) -> None:
        x = torch.tensor([self._number, word])
        group._fly([group._comm.send(x.data_ptr(), *items(x), to, tag, True)], [], x)

    def _hear(self, group: Any, source: int, tag: int, by: float) -> int | None:
        """What it says to this call; None if that does not come in time."""
        while True:
            work, x = self._asked.get(source) or self._ask(group, source, tag)
            while not work.test():
                if time.monotonic() > by:
                    return None
                time.sleep(_LOOK_S)
            del self._asked[source]
            try:
                work.wait()
            except _manta.PeerLost as e:
                if "has left its train function" in str(e):  # well, so it never comes
                    return None
                raise
            number, word = x.tolist()
            if number >= self._number:
                return int(word)

    def _ask(self, group: Any, source: int, tag: int) -> tuple[_manta.Work, Tensor]:
        x = torch.zeros(2, dtype=torch.int64)
        work = group._comm.recv(x.data_ptr(), *items(x), source, tag, True)
        self._asked[source] = (work, x)
        return work, x

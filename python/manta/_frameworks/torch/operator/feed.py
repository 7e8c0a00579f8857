# SPDX-License-Identifier: Apache-2.0
"""The batches of one pass after the other, out of a loader. A pass may end within an epoch, and the
next one continues there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any


class Feed:
    """Where a worker is in its data."""

    def __init__(self, loader: Callable[[], Any]):
        self._loader = loader
        self._batches: Iterator[Any] | None = None  # of the epoch that has begun
        self.epochs = 0  # begun so far
        self.taken = 0  # batches of the one that has begun

    def batches(self, steps: int | None) -> Iterator[Any]:
        """To the end of the epoch; or so many, out of as many epochs as that takes."""
        left = steps or None
        while True:
            resumed = self.taken > 0
            got = yield from self._of_epoch(left)
            if got == 0 and not resumed:
                return  # there is no data
            if left is None and got == 0:
                continue  # the pass before had ended with its epoch
            if left is None or left == got:
                return
            left -= got

    def _of_epoch(self, most: int | None) -> Generator[Any, None, int]:
        """Up to `most` batches of this epoch; how many there were."""
        got = 0
        for batch in itertools.islice(self._begun(), most):
            got += 1
            self.taken += 1
            yield batch
        if most is None or got < most:
            self._batches, self.taken = None, 0
        return got

    def _begun(self) -> Iterator[Any]:
        if self._batches is None:
            loader = self._loader()
            if hasattr(loader, "set_epoch"):
                loader.set_epoch(self.epochs)
            self.epochs += 1
            self._batches = iter(loader)
        return self._batches

    # --- for checkpoints --------------------------------------------------------------------------

    def state(self, size: int) -> dict[str, int]:
        """size: how many workers read, each its part."""
        return {"epochs": self.epochs, "batches": self.taken * size}

    def load(self, state: dict[str, int], size: int) -> None:
        """Continues there; with another number of workers, after as many batches in all."""
        self._batches, self.taken, self.epochs = None, 0, state["epochs"]
        if skipped := state["batches"] // size:
            self.epochs -= 1
            for _ in itertools.islice(self._begun(), skipped):
                self.taken += 1

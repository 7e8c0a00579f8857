# SPDX-License-Identifier: Apache-2.0
"""Batches one after the other, and where they are: what a `for` goes over."""

from __future__ import annotations

import atexit
import warnings
import weakref
from typing import Any, Callable, Generic, Iterator, Sequence, TypeVar

from manta import _manta
from manta.data import run
from manta.data.plan import Field, Plan

T = TypeVar("T")

TAILS = {"short": 0, "drop": 1, "pad": 2}

_open: weakref.WeakSet[Batches[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """While Python still runs: threads that read may need it to end."""
    for it in list(_open):
        it.close()


def tail_number(tail: str | None, drop_last: bool) -> int:
    if tail is None:
        return TAILS["drop" if drop_last else "short"]
    if tail not in TAILS:
        raise ValueError(f"tail={tail!r}: it is \"short\" (the last batch is smaller), \"drop\" "
                         "(rows that do not fill it are left out) or \"pad\" (the first rows come "
                         "once more)")
    return TAILS[tail]


class Batches(Generic[T]):
    """The batches of a data set. Each `for` over it is an epoch, which has another order if the
    data set is shuffled; `next()` goes on where the last batch was.

    `state_dict()` is the position behind the last batch, a small dict of numbers that goes into a
    checkpoint; after `load_state_dict()` the next `for` goes on from there, with any batch size and
    any number of workers. Not for several threads at once."""

    def __init__(self, plan: Plan, options: dict[str, Any],
                 convert: Callable[[_manta.Batch, Sequence[Field]], T],
                 asked: Plan | None = None) -> None:
        """asked: the plan whose batches were asked for, if it is another: its stats have them."""
        self._plan = plan
        self._counts = {plan, asked or plan}  # whose stats have what is done here
        self._options = options
        self._convert = convert
        self._loader: _manta.Loader | None = None
        self._name = ""  # of its positions in a run
        self._begins = True  # the next `for` goes on from where the loader is
        self._left = False  # a `for` over it was left
        for counted in self._counts:
            counted.iterators.add(self)
        _open.add(self)

    def _get(self) -> _manta.Loader:
        if self._loader is None:
            self._loader = self._open_loader()
            self._opened(self._loader)
        return self._loader

    def _open_loader(self) -> _manta.Loader:
        data, options = self._plan.data(), self._options
        if not (name := options.get("name")):
            return data.loader(options)
        self._name, epoch = run.enter(name)
        try:
            return data.loader({**options, "name": self._name, "epoch": epoch})
        except BaseException:
            run.leave(self._name, None)
            raise

    def _opened(self, loader: _manta.Loader) -> None:
        """For what a kind of batches has to tell its loader."""

    def _next(self, loader: _manta.Loader) -> T | None:
        batch = loader.next()
        if batch is None:
            return None
        if batch.rows() == 0:
            warn_of_empty()
        return self._convert(batch, self._plan.fields())

    # --- iteration ---

    def __iter__(self) -> Iterator[T]:
        loader = self._get()
        if not self._begins:
            loader.begin(loader.epoch() + 1)
        self._begins = self._left = False
        return self._watched(loader) if self._name else self._go_on()

    def _watched(self, loader: _manta.Loader) -> Iterator[T]:
        """In a run, where checkpoints follow."""
        try:
            yield from self._go_on()
        except GeneratorExit:  # the loop was left
            if loader is self._loader:
                run.skip_rest(loader)
                self._left = True
            raise

    def _go_on(self) -> Iterator[T]:
        loader = self._get()
        while (made := self._next(loader)) is not None:
            yield made
        self._end(loader)

    def _end(self, loader: _manta.Loader) -> None:
        """A position that is taken now is the beginning of the next epoch."""
        loader.begin(loader.epoch() + 1)
        self._begins = True

    def __next__(self) -> T:
        loader = self._get()
        if self._left:  # not for good
            self._left = False
            loader.mark(None)
        made = self._next(loader)
        if made is None:
            self._end(loader)
            raise StopIteration
        self._begins = True
        return made

    # --- positions ---

    @property
    def epoch(self) -> int:
        """That the last batch was of; after its end, the next."""
        return self._get().epoch()

    def set_epoch(self, epoch: int) -> None:
        """The next `for` is this epoch, from its beginning."""
        self._get().begin(epoch)
        self._begins = True

    def state_dict(self) -> dict[str, int]:
        return self._get().save()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._get().load(dict(state))
        self._begins = True

    # --- the rest ---

    def stats(self) -> dict[str, float]:
        """Batches and rows that were given, and where the time went, in seconds: parse and idle (of
        the threads that read), make (rows were put together), wait (for a batch)."""
        return self._loader.stats() if self._loader is not None else {}

    def close(self) -> None:
        """Ends the threads that read. It happens by itself when nobody holds the iterator."""
        loader, self._loader = self._loader, None
        if loader is not None:
            for counted in self._counts:
                counted.add_times(loader.stats())
            if self._name:
                run.leave(self._name, loader)
            loader.close()
        self._begins = True

    def __del__(self) -> None:
        if getattr(self, "_loader", None) is not None:
            self.close()


def warn_of_empty() -> None:
    warnings.warn("the last global batch has fewer rows than there are workers: this one's part is "
                  "empty\nhint: tail=\"drop\" or tail=\"pad\"", RuntimeWarning, stacklevel=4)

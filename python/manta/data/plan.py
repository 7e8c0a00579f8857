# SPDX-License-Identifier: Apache-2.0
"""A plan: how a data set of libmanta is made, again in every process that it travels to.

A plan is a function of this package, its arguments, and the plans that it comes from. Its Data
(python/ext/data.c) is made when it is first asked for and stays in this process; a pickle has the
rest.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

from manta import _manta

if TYPE_CHECKING:
    from manta.data.iterator import Batches


class Field(NamedTuple):
    """A column of a schema."""
    name: str
    format: str  # in Arrow's words; of a tensor, that of its elements
    kind: int  # NUMBER, BOOL, STRING, BYTES
    dtype: int  # of a NUMBER: an index of _manta.DTYPES
    shape: tuple[int, ...]  # of one value: () but for tensors


NUMBER, BOOL, STRING, BYTES = range(4)

_making = threading.RLock()


class Plan:
    """`build(*data of the inputs, *args)` gives its Data. `build` is a function that a pickle can
    name, and `args` are pickled."""

    def __init__(self, build: Callable[..., _manta.Data], args: tuple[Any, ...] = (),
                 inputs: Sequence[Plan] = ()) -> None:
        self.build = build
        self.args = args
        self.inputs = tuple(inputs)
        # Whether to make it is to call the user's functions: that waits until rows are wanted.
        self.calls: bool = hasattr(build, "calls") or any(i.calls for i in self.inputs)
        self._data: _manta.Data | None = None
        self._fields: list[Field] | None = None
        self.iterators: weakref.WeakSet[Batches[Any]] = weakref.WeakSet()
        self.times: dict[str, float] = {}  # of iterators that are closed
        self._only: tuple[list[str], list[str], Plan] | None = None  # what only() gave last

    def __reduce__(self) -> tuple[Any, ...]:
        return (Plan, (self.build, self.args, self.inputs))

    def add_times(self, more: dict[str, float]) -> None:
        """Of an iterator that is being closed."""
        for key, value in more.items():
            before = self.times.get(key, 0)
            self.times[key] = max(before, value) if key == "bytes_max" else before + value

    def data(self) -> _manta.Data:
        with _making:
            if self._data is None:
                self._data = self.build(*(i.data() for i in self.inputs), *self.args)
            return self._data

    def fields(self) -> list[Field]:
        if self._fields is None:
            self._fields = [Field(*row) for row in self.data().fields()]
        return self._fields

    def step(self, build: Callable[..., _manta.Data], *args: Any) -> Plan:
        return Plan(build, args, (self,))

    def only(self, columns: list[str], singles: list[str]) -> Plan:
        """These columns, of which `singles` may be float32. The same plan again for the same
        arguments: what it has parsed is there for an iterator that is made anew in each epoch."""
        if self._only is None or self._only[:2] != (columns, singles):
            narrow = self.step(single, singles) if singles else self
            every = columns == [f.name for f in self.fields()]
            self._only = columns, singles, narrow if every else narrow.step(select, columns)
        return self._only[2]


# --- steps of C: what plans name ------------------------------------------------------------------


def filter_rows(data: _manta.Data, tree: Any) -> _manta.Data:
    return data.filter(tree)


def add_column(data: _manta.Data, name: str, tree: Any) -> _manta.Data:
    return data.add(name, tree)


def select(data: _manta.Data, columns: list[str]) -> _manta.Data:
    return data.select(columns)


def drop(data: _manta.Data, columns: list[str]) -> _manta.Data:
    return data.drop(columns)


def rename(data: _manta.Data, old: list[str], new: list[str]) -> _manta.Data:
    return data.rename(old, new)


def compute(data: _manta.Data, columns: list[tuple[str, Any]]) -> _manta.Data:
    """Only these columns, each out of those that were there."""
    made = [f"\x7f{i}" for i in range(len(columns))]  # names that nobody has
    for name, (_, tree) in zip(made, columns):
        data = data.add(name, tree)
    return data.select(made).rename(made, [name for name, _ in columns])


def sample(data: _manta.Data, fraction: float, seed: int) -> _manta.Data:
    return data.sample(fraction, seed)


def limit(data: _manta.Data, rows: int) -> _manta.Data:
    return data.limit(rows)


def repeat(data: _manta.Data, times: int) -> _manta.Data:
    return data.repeat(times)


def shuffle(data: _manta.Data, seed: int, window: int) -> _manta.Data:
    return data.shuffle(seed, window)


def single(data: _manta.Data, columns: list[str]) -> _manta.Data:
    return data.single(columns)


def fold(data: _manta.Data, options: dict[str, Any]) -> _manta.Data:
    return data.fold(options)


def union(*data: _manta.Data) -> _manta.Data:
    return data[0].union(list(data[1:]))


def zip_rows(data: _manta.Data, other: _manta.Data) -> _manta.Data:
    return data.zip(other)


def hold(data: _manta.Data) -> _manta.Data:
    """Its rows in memory."""
    return _manta.import_data(data.stream(0, data.blocks()))

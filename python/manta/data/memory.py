# SPDX-License-Identifier: Apache-2.0
"""Data sets of what is in memory already: Python objects and arrays of numpy."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from manta import _manta
from manta.data.columns import Column, column_of, numpy_column
from manta.data.dataset import Dataset
from manta.data.plan import Plan
from manta.data.source import reader


def open_columns(rows: int, columns: list[Column]) -> _manta.Data:
    return _manta.import_data(_manta.columns(rows, [tuple(c) for c in columns]))


def _dataset(rows: int, columns: list[Column]) -> Dataset:
    return Dataset.of(Plan(open_columns, (rows, columns)))


# --- Python objects -------------------------------------------------------------------------------


@reader
def from_items(items: Iterable[Any]) -> Dataset:
    """A row per item: dicts are rows of columns, anything else is the column "item". Numbers,
    bools, strings, bytes and None; arrays, and lists of numbers, that all have one shape are
    tensors. A key that a dict does not have is null there."""
    rows = list(items)
    if not rows:
        raise ValueError("from_items: there are no items, and so no columns")
    if not all(isinstance(r, Mapping) for r in rows):
        return _dataset(len(rows), [column_of("item", rows)])
    names = dict.fromkeys(str(k) for r in rows for k in r)
    return _dataset(len(rows), [column_of(n, [r.get(n) for r in rows]) for n in names])


# --- numpy ----------------------------------------------------------------------------------------


@reader
def from_numpy(arrays: Any) -> Dataset:
    """An array, whose first dimension are the rows, as the column "data"; a dict of arrays: a
    column each; a list of arrays: their rows, one after the other. Memory is shared, not copied,
    where it lies in rows."""
    import numpy
    if isinstance(arrays, (list, tuple)):
        parts = [from_numpy(a) for a in arrays]
        return parts[0].union(*parts[1:]) if len(parts) > 1 else parts[0]
    named = arrays if isinstance(arrays, Mapping) else {"data": arrays}
    columns = {str(k): numpy.asarray(v) for k, v in named.items()}
    lengths = {len(a) if a.ndim else -1 for a in columns.values()}
    if len(lengths) != 1 or -1 in lengths:
        said = ", ".join(f"{k!r} {a.shape}" for k, a in columns.items())
        raise ValueError(f"from_numpy: arrays of equally many rows are wanted, not {said or '{}'}")
    return _dataset(lengths.pop(), [numpy_column(k, a) for k, a in columns.items()])

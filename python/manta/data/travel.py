# SPDX-License-Identifier: Apache-2.0
"""Rows that are in memory, on their way to other processes: a pickle has the memory of their
columns, whatever library they came from."""

from __future__ import annotations

import struct
from typing import Any

from manta import _manta
from manta.data.columns import Column
from manta.data.formats import CODES
from manta.data.plan import BOOL, NUMBER, Field

BATCH = 1 << 20  # rows of a part

Part = tuple[int, list[tuple[Any, ...]]]


class Rows:
    """Data of this process; in a pickle, its columns."""

    def __init__(self, data: _manta.Data) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpack, (_pack(self.data),))


def open_rows(rows: Rows) -> _manta.Data:
    """As a plan names it."""
    return rows.data


def _unpack(parts: list[Part]) -> Rows:
    made = [_manta.import_data(_manta.columns(rows, columns)) for rows, columns in parts]
    return Rows(made[0].union(made[1:]) if len(made) > 1 else made[0])


def _pack(data: _manta.Data) -> list[Part]:
    fields = [Field(*row) for row in data.fields()]
    loader = data.loader({"batch_rows": BATCH, "prefetch": -1})
    parts: list[Part] = []
    try:
        while (batch := loader.next()) is not None:
            parts.append((batch.rows(), [tuple(_memory(batch, i, f))
                                         for i, f in enumerate(fields)]))
    finally:
        loader.close()
    return parts or [(0, [tuple(_empty(f)) for f in fields])]


def _memory(batch: _manta.Batch, number: int, field: Field) -> Column:
    """The bytes of a column, from its first value on."""
    rows = batch.rows()
    offset, nulls, data, offsets, valid = batch.column(number)
    bits, format = _layout(field)
    here = _bits(valid, offset, rows) if nulls else None
    if field.kind == BOOL:
        return Column(field.name, format, bits, (), _bits(data, offset, rows), None, here)
    if field.kind != NUMBER:
        assert offsets is not None
        at = memoryview(offsets).cast("i")[offset:offset + rows + 1]
        return Column(field.name, format, bits, (), bytes(memoryview(data)[:at[rows]]), bytes(at),
                      here)
    width = bits // 8
    for n in field.shape:
        width *= n
    values = bytes(memoryview(data)[offset * width:(offset + rows) * width])
    return Column(field.name, format, bits, field.shape, values, None, here)


def _layout(field: Field) -> tuple[int, str]:
    """Bits of an element, and the format as _manta.columns takes it."""
    if field.kind != NUMBER:
        return (1 if field.kind == BOOL else 8), field.format
    name = _manta.DTYPES[field.dtype]
    return 8 * struct.calcsize(CODES[name]), "bf16" if name == "BF16" else field.format


def _bits(view: Any, offset: int, rows: int) -> bytes:
    number = int.from_bytes(bytes(view), "little") >> offset
    return (number & (1 << rows) - 1).to_bytes((rows + 7) // 8, "little")


def _empty(field: Field) -> Column:
    bits, format = _layout(field)
    offsets = bytes(4) if field.kind > BOOL else None
    return Column(field.name, format, bits, field.shape, b"", offsets, None)

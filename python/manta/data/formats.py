# SPDX-License-Identifier: Apache-2.0
"""What a batch is given out as: lists, arrays of numpy, a DataFrame, a table of pyarrow, tensors.

Arrays show the memory of the batch and hold it; they cannot be written to.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Sequence

from manta import _manta
from manta.data.plan import BOOL, NUMBER, STRING, Field

Converter = Callable[[_manta.Batch, Sequence[Field]], Any]

CODES = {"U8": "B", "I8": "b", "BOOL": "?", "U16": "H", "I16": "h", "U32": "I", "I32": "i",
          "F32": "f", "U64": "Q", "I64": "q", "F64": "d", "F16": "e", "BF16": "H"}
_TIMES = {"tdD": "M8[D]", "tdm": "M8[ms]", "tDs": "m8[s]", "tDm": "m8[ms]", "tDu": "m8[us]",
          "tDn": "m8[ns]"}
_STAMPS = {"tss": "M8[s]", "tsm": "M8[ms]", "tsu": "M8[us]", "tsn": "M8[ns]"}


# --- lists ----------------------------------------------------------------------------------------


def _bits(view: Any, offset: int, rows: int) -> list[bool]:
    data = bytes(view)
    return [bool(data[i >> 3] >> (i & 7) & 1) for i in range(offset, offset + rows)]


def _words(field: Field, offset: int, rows: int, data: Any, offsets: Any) -> list[Any]:
    at = memoryview(offsets).cast("i")[offset:offset + rows + 1].tolist() if rows else [0]
    raw = bytes(memoryview(data)[at[0]:at[-1]])
    text: Any = raw
    if field.kind == STRING:
        if not raw.isascii():
            return [raw[a - at[0]:b - at[0]].decode(errors="replace") for a, b in zip(at, at[1:])]
        text = raw.decode()
    return [text[a - at[0]:b - at[0]] for a, b in zip(at, at[1:])]


def _numbers(field: Field, offset: int, rows: int, data: Any) -> list[Any]:
    code: Any = CODES[_manta.DTYPES[field.dtype]]
    if code == "e":
        return list(struct.unpack_from(f"={rows}e", data, 2 * offset))
    values = memoryview(data).cast(code)[offset:offset + rows].tolist() if rows else []
    if _manta.DTYPES[field.dtype] == "BF16":
        return [struct.unpack("=f", struct.pack("=I", v << 16))[0] for v in values]
    return values


def column_list(batch: _manta.Batch, number: int, field: Field) -> list[Any]:
    """Values of a column as Python has them, None for null; tensors are arrays of numpy."""
    rows = batch.rows()
    offset, nulls, data, offsets, valid = batch.column(number)
    if field.shape or field.format in _TIMES or field.format[:3] in _STAMPS:
        values: list[Any] = list(column_array(batch, number, field))
    elif field.kind == NUMBER:
        values = _numbers(field, offset, rows, data)
    elif field.kind == BOOL:
        values = _bits(data, offset, rows)
    else:
        values = _words(field, offset, rows, data, offsets)
    if nulls:
        there = _bits(valid, offset, rows)
        values = [v if ok else None for v, ok in zip(values, there)]
    return values


def to_dict(batch: _manta.Batch, fields: Sequence[Field]) -> dict[str, list[Any]]:
    return {f.name: column_list(batch, i, f) for i, f in enumerate(fields)}


def rows_of(batch: _manta.Batch, fields: Sequence[Field]) -> list[dict[str, Any]]:
    names = [f.name for f in fields]
    columns = [column_list(batch, i, f) for i, f in enumerate(fields)]
    return [dict(zip(names, row)) for row in zip(*columns)]


def numpy_type(field: Field) -> str:
    """What numpy calls the values of a column."""
    if field.kind == NUMBER:
        name = _manta.DTYPES[field.dtype]
        return "float32" if name == "BF16" else _time_type(field.format) or CODES[name]
    return "bool" if field.kind == BOOL else "str"


# --- numpy ----------------------------------------------------------------------------------------


def _plain_array(field: Field, offset: int, rows: int, data: Any) -> Any:
    import numpy
    name = _manta.DTYPES[field.dtype]
    count = 1
    for n in field.shape:
        count *= n
    code = "u2" if name == "BF16" else CODES[name]
    dtype = numpy.dtype(code)
    shape = (rows, *field.shape)
    if rows * count == 0:
        return numpy.zeros(shape, "f4" if name == "BF16" else dtype)
    values = numpy.frombuffer(data, dtype, rows * count, offset * count * dtype.itemsize)
    if name == "BF16":  # which numpy does not have
        values = (values.astype("u4") << 16).view("f4")
    return values.reshape(shape)


def _time_type(format: str) -> str | None:
    return _TIMES.get(format) or _STAMPS.get(format[:3])


def _mask(valid: Any, offset: int, rows: int) -> Any:
    """True where a value is null."""
    import numpy
    bits = numpy.unpackbits(numpy.frombuffer(valid, "u1"), count=offset + rows, bitorder="little")
    return bits[offset:] == 0


def _without_nulls(values: Any, missing: Any) -> Any:
    """NaN and NaT stand for null; bools and text become objects with None."""
    kind = values.dtype.kind
    if kind in "iu":
        values = values.astype("f8")
    elif kind == "b":
        values = values.astype("O")
    else:
        values = values.copy()
    values[missing] = None if kind in "bO" else "NaT" if kind in "mM" else float("nan")
    return values


def column_array(batch: _manta.Batch, number: int, field: Field) -> Any:
    """A column as an array of numpy. Integers with nulls become floats, NaN for null."""
    import numpy
    rows = batch.rows()
    offset, nulls, data, offsets, valid = batch.column(number)
    if field.kind == NUMBER:
        values = _plain_array(field, offset, rows, data)
        if kind := _time_type(field.format):
            values = values.astype("i8").view(kind)
    elif field.kind == BOOL:
        bits = numpy.unpackbits(numpy.frombuffer(data, "u1") if rows else numpy.zeros(0, "u1"),
                                count=offset + rows if rows else 0, bitorder="little")
        values = bits[offset if rows else 0:].astype(bool)
    else:
        values = numpy.empty(rows, object)
        values[:] = _words(field, offset, rows, data, offsets)
    return _without_nulls(values, _mask(valid, offset, rows)) if nulls else values


def to_numpy(batch: _manta.Batch, fields: Sequence[Field]) -> dict[str, Any]:
    return {f.name: column_array(batch, i, f) for i, f in enumerate(fields)}


# --- other libraries ------------------------------------------------------------------------------


def to_pandas(batch: _manta.Batch, fields: Sequence[Field]) -> Any:
    import pandas
    columns = {name: list(values) if values.ndim > 1 else values
               for name, values in to_numpy(batch, fields).items()}
    return pandas.DataFrame(columns)


def to_pyarrow(batch: _manta.Batch, fields: Sequence[Field]) -> Any:
    import pyarrow
    return pyarrow.Table.from_batches([pyarrow.record_batch(batch)])


def to_torch(batch: _manta.Batch, fields: Sequence[Field]) -> dict[str, Any]:
    from manta._frameworks.torch.batches import tensors
    return tensors(batch, fields)


FORMATS: dict[str, Converter] = {
    "numpy": to_numpy, "default": to_numpy, "pandas": to_pandas, "pyarrow": to_pyarrow,
    "torch": to_torch, "dict": to_dict}


def converter(batch_format: str | None) -> Converter:
    found = FORMATS.get(batch_format or "numpy")
    if found is None:
        raise ValueError(f"batch_format={batch_format!r}: it is one of "
                         + ", ".join(f'"{name}"' for name in FORMATS if name != "default"))
    return found

# SPDX-License-Identifier: Apache-2.0
"""Columns out of Python values and arrays of numpy: their memory, as Arrow has it."""

from __future__ import annotations

import array
import datetime
import sys
from typing import Any, NamedTuple, Sequence

_FORMATS = {"i1": "c", "u1": "C", "i2": "s", "u2": "S", "i4": "i", "u4": "I", "i8": "l", "u8": "L",
            "f2": "e", "f4": "f", "f8": "g"}
_TIMES = {"D": "tdD", "s": "tss:", "ms": "tsm:", "us": "tsu:", "ns": "tsn:"}
_SPANS = {"s": "tDs", "ms": "tDm", "us": "tDu", "ns": "tDn"}


class Column(NamedTuple):
    """Memory of a column, as _manta.columns takes it. Pickled with the data set."""
    name: str
    format: str
    bits: int  # of an element
    shape: tuple[int, ...]
    data: Any
    offsets: Any = None
    valid: Any = None


def column_of(name: str, values: list[Any]) -> Column:
    values = [v.item() if _is_scalar(v) else v for v in values]
    kinds = {type(v) for v in values} - {type(None)}
    valid = _bitmap([v is not None for v in values]) if None in (
        v if v is None else 0 for v in values) else None
    if not kinds:
        return _numbers(name, "g", "d", [float("nan")] * len(values), valid)
    if kinds == {bool}:
        return Column(name, "b", 1, (), _bitmap([bool(v) for v in values]), None, valid)
    if kinds == {int}:
        large = any(v is not None and v > 2 ** 63 - 1 for v in values)
        try:
            return _numbers(name, "L" if large else "l", "Q" if large else "q",
                            [v or 0 for v in values], valid)
        except OverflowError:
            raise ValueError(f"column {name!r}: a number does not fit into 64 bits") from None
    if kinds <= {int, float}:
        nan = float("nan")
        return _numbers(name, "g", "d", [nan if v is None else float(v) for v in values], valid)
    if kinds in ({str}, {bytes}):
        return _text(name, "u" if kinds == {str} else "z", values, valid)
    if all(_is_time(kind) for kind in kinds):
        return _times(name, values, kinds)
    return _tensor_column(name, values, kinds, valid)


def _is_scalar(value: Any) -> bool:
    """Of numpy or torch; a time stays what it is, with its unit."""
    return (hasattr(value, "item") and getattr(value, "ndim", 1) == 0
            and getattr(getattr(value, "dtype", None), "kind", "") not in ("m", "M"))


def _is_time(kind: type) -> bool:
    if issubclass(kind, (datetime.date, datetime.timedelta)):  # a datetime is a date
        return True
    return kind.__module__ == "numpy" and kind.__name__ in ("datetime64", "timedelta64")


def _times(name: str, values: list[Any], kinds: set[type]) -> Column:
    """Dates, times and spans; what has a time zone becomes UTC."""
    import numpy
    plain = [v.astimezone(datetime.timezone.utc).replace(tzinfo=None)
             if getattr(v, "tzinfo", None) else v for v in values]
    first = next(v for v in plain if v is not None)
    letter = "m" if type(first).__name__.startswith("timedelta") or isinstance(
        first, datetime.timedelta) else "M"
    units = {v.dtype for v in plain if hasattr(v, "dtype")}
    code = f"{letter}8[{'D' if all(k is datetime.date for k in kinds) else 'us'}]"
    if len(units) == len(kinds) == 1:
        code = units.pop()
    try:
        return _time_column(name, numpy.array(["NaT" if v is None else v for v in plain], code))
    except (TypeError, ValueError):
        raise TypeError(f"column {name!r}: times and spans do not make one column\n"
                        "hint: values of one type") from None


def _bitmap(bits: Sequence[bool]) -> bytes:
    out = bytearray((len(bits) + 7) // 8)
    for i, on in enumerate(bits):
        if on:
            out[i >> 3] |= 1 << (i & 7)
    return bytes(out)


def _numbers(name: str, format: str, code: str, values: list[Any], valid: bytes | None) -> Column:
    return Column(name, format, 64, (), array.array(code, values), None, valid)


def _text(name: str, format: str, values: Sequence[Any], valid: bytes | None) -> Column:
    parts = [b"" if v is None else v.encode() if isinstance(v, str) else bytes(v) for v in values]
    offsets, end = array.array("i", [0]), 0
    for p in parts:
        end += len(p)
        if end > 2 ** 31 - 1:
            raise ValueError(f"column {name!r} has more than 2 GiB of text\n"
                             "hint: union() of several data sets")
        offsets.append(end)
    return Column(name, format, 8, (), b"".join(parts), offsets, valid)


def _tensor_column(name: str, values: list[Any], kinds: set[type], valid: bytes | None) -> Column:
    import numpy
    arrays = [None if v is None else _array(v) for v in values]
    shapes = {a.shape for a in arrays if a is not None}
    if len(shapes) != 1 or any(a is not None and a.dtype.kind not in "biuf" for a in arrays):
        found = ", ".join(sorted(k.__name__ for k in kinds))
        raise TypeError(f"column {name!r}: values of {found} do not make a column\nhint: "
                        + ("lists of numbers that are padded to one length"
                           if len(shapes) > 1 and len(kinds) == 1 else
                           "values of one type: numbers, bools, text, bytes, times; arrays and "
                           "lists of numbers, all of one shape; json.dumps() makes text of others"))
    zero = numpy.zeros(shapes.pop())
    stacked = numpy.stack([zero if a is None else a for a in arrays])
    return numpy_column(name, stacked)._replace(valid=valid)


def _array(value: Any) -> Any:
    """Of a list, too; one that is ragged itself is an array of objects."""
    import numpy
    try:
        return numpy.asarray(value)
    except ValueError:
        return numpy.empty(0, object)


def series_column(name: str, series: Any) -> Column:
    """Of a Series of pandas, whatever it has for null."""
    kind = getattr(series.dtype, "kind", "O")
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        kind = "M"
    if type(series.dtype).__module__.startswith("numpy") and kind in "biufmM" or kind == "M":
        return numpy_column(name, series.to_numpy())
    values = series.astype(object)
    return column_of(name, [None if missing else v for v, missing
                            in zip(values.tolist(), series.isna().tolist())])


def frame_columns(frame: Any) -> list[Column]:
    """Of a DataFrame of pandas, without its index."""
    names = [str(name) for name in frame.columns]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"a DataFrame with two columns {twice!r}\nhint: rename one of them")
    return [series_column(name, frame[key]) for name, key in zip(names, frame.columns)]


def numpy_column(name: str, values: Any) -> Column:
    """Of an array of numpy; the first dimension are the rows."""
    import numpy
    kind, shape = values.dtype.kind, tuple(int(n) for n in values.shape[1:])
    if kind == "b" and not shape:
        return Column(name, "b", 1, (), numpy.packbits(values, bitorder="little").tobytes())
    if kind in "OUS" and not shape:
        return column_of(name, values.tolist())
    if kind in "mM" and not shape:
        return _time_column(name, values)
    if kind == "b":
        values = values.astype("u1")
    if values.dtype.name == "bfloat16":
        return Column(name, "bf16", 16, shape, numpy.ascontiguousarray(values).view("u2"))
    if values.dtype.byteorder == (">" if sys.byteorder == "little" else "<"):
        values = values.astype(values.dtype.newbyteorder("="))
    format = _FORMATS.get(values.dtype.str[1:])
    if not format:
        raise TypeError(f"column {name!r}: an array of {values.dtype} does not make a column")
    return Column(name, format, 8 * values.dtype.itemsize, shape, numpy.ascontiguousarray(values))


def _time_column(name: str, values: Any) -> Column:
    import numpy
    unit = numpy.datetime_data(values.dtype)[0]
    table = _TIMES if values.dtype.kind == "M" else _SPANS
    if unit not in table:
        unit = "D" if unit in ("Y", "M", "W") and values.dtype.kind == "M" else "s"
        values = values.astype(f"{values.dtype.kind}8[{unit}]")
    missing = numpy.isnat(values)
    valid = numpy.packbits(~missing, bitorder="little").tobytes() if missing.any() else None
    numbers = values.astype("i8")
    if unit == "D":
        numbers = numbers.astype("i4")
    return Column(name, table[unit], 8 * numbers.itemsize, (), numbers, None, valid)

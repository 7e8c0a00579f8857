# SPDX-License-Identifier: Apache-2.0
"""Where rows come from: files of one format, numbers, and what is in memory already."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, Iterable, Mapping, ParamSpec, Sequence

from manta import _manta, _names
from manta.data.dataset import Dataset
from manta.data.plan import Plan

P = ParamSpec("P")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


# How other engines place work; here threads read blocks wherever rows are asked for.
_PLACING = ("concurrency", "memory", "meta_provider", "num_cpus", "num_gpus", "override_num_blocks",
            "parallelism", "ray_remote_args")
# What else other engines take; said to be nothing, it is nothing.
_IF_NONE = ("arrow_open_stream_args", "file_extensions", "filesystem", "partition_filter",
            "partitioning", "shuffle")


def reader(function: Callable[P, Dataset]) -> Callable[P, Dataset]:
    """What a program says of placement changes nothing; any other argument that is not known is
    answered with the one that is meant."""
    checked = _names.arguments(function)

    @functools.wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> Dataset:
        for name in _PLACING:
            kwargs.pop(name, None)
        for name in _IF_NONE:
            if name in kwargs and kwargs[name] is None:
                del kwargs[name]
        return checked(*args, **kwargs)
    return read


def _where(path: str | os.PathLike[str]) -> str:
    """The same place in every process: a worker may have another directory."""
    text = os.fspath(path)
    if text.startswith("file://"):
        text = text[len("file://"):]
    if "://" in text:
        return text
    tail = "/" if text.endswith("/") else ""
    return os.path.abspath(os.path.expanduser(text)) + tail


def _paths(paths: Paths) -> list[str]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) or not isinstance(
        paths, Iterable) else list(paths)
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"a path is a str or a Path, or a list of them, not a "
                            f"{type(path).__name__}")
    if not given:
        raise ValueError("no path is given\nhint: a file, a folder, a pattern such as "
                         "\"data/*.csv\", or a list of them")
    return [_where(p) for p in given]


def _skips(on_error: str) -> bool:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}: it is \"raise\", or \"skip\" for rows that "
                         "cannot be read to be left out and counted")
    return on_error == "skip"


def open_files(paths: list[str], options: dict[str, Any]) -> _manta.Data:
    return _manta.open_data(paths, options)


def _read(paths: Paths, format: str | None, on_error: str, options: Mapping[str, Any]) -> Dataset:
    given = {k: v for k, v in options.items() if v is not None and v is not False}
    columns = given.pop("columns", None)
    if format:
        given["format"] = format
    if _skips(on_error):
        given["skip_errors"] = True
    found = Dataset.of(Plan(open_files, (_paths(paths), given)))
    return found if columns is None else found.select_columns(columns)


def _strings(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [str(n) for n in names]


@reader
def read_csv(paths: Paths, *, columns: Sequence[str] | None = None,
             types: Mapping[str, str] | None = None, separator: str | None = None,
             quote: str | None = None, quoting: bool = True, header: bool = True,
             names: Sequence[str] | None = None, missing: Sequence[str] | None = None,
             on_error: str = "raise", compression: str | None = None,
             block_bytes: int | None = None, row_bytes: int | None = None) -> Dataset:
    """CSV as RFC 4180 has it, lines with or without CR; numbers are those of strtod, bit by bit.

    paths: a file, a pattern, a folder, s3://…, http(s)://…, or a list of them; .gz and .zst are
        read through.
    columns: only these, in this order.
    types: where what a sample shows is not wanted: {"zip": "string", "x": "f32"}.
    separator, quote: one character each; quoting=False: no character quotes.
    header=False: the first row is data; names: those of all columns then, else c0, c1, …
    missing: what stands for a value that is not there.
    on_error="skip": rows that cannot be read are left out and counted (stats()).
    block_bytes: files are cut into blocks of about so many bytes (32 MiB).
    """
    return _read(paths, "csv", on_error, {
        "columns": _strings(columns), "types": None if types is None else dict(types),
        "separator": separator, "quote": quote, "no_quotes": not quoting, "no_header": not header,
        "names": _strings(names), "missing": _strings(missing), "compression": compression,
        "block_bytes": block_bytes, "row_bytes": row_bytes})


@reader
def read_json(paths: Paths, *, columns: Sequence[str] | None = None,
              types: Mapping[str, str] | None = None, on_error: str = "raise",
              compression: str | None = None, block_bytes: int | None = None) -> Dataset:
    """An object per line. Arguments as of `read_csv`."""
    return _read(paths, "json", on_error, {
        "columns": _strings(columns), "types": None if types is None else dict(types),
        "compression": compression, "block_bytes": block_bytes})


@reader
def read_numpy(paths: Paths, *, columns: Sequence[str] | None = None,
               block_bytes: int | None = None) -> Dataset:
    """.npy: an array, whose first dimension are the rows, as the column "data"; .npz: a column per
    array."""
    return _read(paths, None, "raise", {"columns": _strings(columns), "block_bytes": block_bytes})


@reader
def read_tfrecords(paths: Paths, *, columns: Sequence[str] | None = None,
                   types: Mapping[str, str] | None = None, on_error: str = "raise",
                   compression: str | None = None) -> Dataset:
    """TFRecord files; where records are tf.train.Example each feature is a column."""
    return _read(paths, "tfrecord", on_error, {
        "columns": _strings(columns), "types": None if types is None else dict(types),
        "compression": compression})


@reader
def read_text(paths: Paths, *, types: Mapping[str, str] | None = None, on_error: str = "raise",
              compression: str | None = None, block_bytes: int | None = None) -> Dataset:
    """A row per line, in the column "text". types={"text": "bytes"}: it need not be UTF-8."""
    return _read(paths, "text", on_error, {"types": None if types is None else dict(types),
                                           "compression": compression, "block_bytes": block_bytes})


@reader
def read_binary_files(paths: Paths, *, columns: Sequence[str] | None = None,
                      row_bytes: int | None = None, include_paths: bool = True) -> Dataset:
    """A row per file: the columns "bytes" and, unless include_paths=False, "path"."""
    if columns is None and not include_paths:
        columns = ["bytes"]
    return _read(paths, "binary", "raise", {"columns": _strings(columns), "row_bytes": row_bytes})


@reader
def read_fixed(paths: Paths, types: Mapping[str, str], *, skip_bytes: int = 0,
               columns: Sequence[str] | None = None, block_bytes: int | None = None) -> Dataset:
    """Records of fixed size; types: all columns, in order: {"label": "u8", "image":
    "u8[3,32,32]"}. skip_bytes: of the head of each file."""
    return _read(paths, "fixed", "raise", {
        "types": dict(types), "skip_bytes": skip_bytes or None, "columns": _strings(columns),
        "block_bytes": block_bytes})


# --- numbers --------------------------------------------------------------------------------------


def open_range(name: str, rows: int, shape: tuple[int, ...]) -> _manta.Data:
    return _manta.range_data(name, rows, shape)


@reader
def range(n: int) -> Dataset:
    """The numbers from 0 to n - 1, as the column "id". They take no memory."""
    return Dataset.of(Plan(open_range, ("id", int(n), ())))


@reader
def range_tensor(n: int, *, shape: Sequence[int] = (1,)) -> Dataset:
    """The same as tensors of this shape that are full of the number, as the column "data"."""
    return Dataset.of(Plan(open_range, ("data", int(n), tuple(int(s) for s in shape))))

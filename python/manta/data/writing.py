# SPDX-License-Identifier: Apache-2.0
"""Data sets into files and other libraries: CSV, JSON lines, Parquet, a DataFrame, tf.data."""

from __future__ import annotations

import csv
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from manta.data import formats
from manta.data.plan import Field

if TYPE_CHECKING:
    from manta.data.dataset import Dataset

ROWS = 4096  # that are written at a time


# --- files ----------------------------------------------------------------------------------------


def _target(d: Dataset, path: str | os.PathLike[str], end: str) -> str:
    """A file if its name has this end, else a part in a folder: shards write beside each other."""
    text = os.path.expanduser(os.fspath(path))
    if "://" in text and not text.startswith("file://"):
        raise ValueError(f"write to {text}: only to local files\nhint: write here, and upload them")
    text = text.removeprefix("file://")
    if text.endswith(end):
        os.makedirs(os.path.dirname(text) or ".", exist_ok=True)
        return text
    os.makedirs(text, exist_ok=True)
    return os.path.join(text, f"part-{d.rank:05}{end}")


@contextmanager
def _whole(target: str) -> Iterator[str]:
    """Where to write: the file appears when it is complete."""
    temporary = f"{target}.{os.getpid()}.tmp"
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def write_csv(d: Dataset, path: str | os.PathLike[str]) -> None:
    for f in d.rows.fields():
        if f.shape:
            raise TypeError(f"write_csv: column {f.name!r} has tensors\nhint: write_json, or "
                            "write_parquet")
    with _whole(_target(d, path, ".csv")) as file, open(
            file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(d.columns())
        for rows in d.iter_batches(batch_size=ROWS, batch_format="dict"):
            writer.writerows(zip(*(map(_cell, column) for column in rows.values())))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"bytes that are no UTF-8 ({value[:20]!r}) cannot be written as text\n"
                         "hint: write_parquet keeps them, or drop_columns() first") from None


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def write_json(d: Dataset, path: str | os.PathLike[str]) -> None:
    with _whole(_target(d, path, ".json")) as file, open(
            file, "w", encoding="utf-8") as out:
        for row in d.iter_rows():
            out.write(json.dumps(row, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return _text(value)
    if hasattr(value, "tolist"):
        found = value.tolist()
        return found if isinstance(found, (int, float, list)) else str(value)
    return str(value)


def write_parquet(d: Dataset, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("write_parquet: pyarrow is not installed\n"
                          "hint: pip install pyarrow") from None
    with _whole(_target(d, path, ".parquet")) as file:
        group = options.pop("row_group_size", None)
        schema = pyarrow.RecordBatchReader.from_stream(d.limit(0)).schema
        with pyarrow.parquet.ParquetWriter(file, schema, **options) as writer:
            for table in d.iter_batches(batch_size=1 << 16, batch_format="pyarrow"):
                writer.write_table(table, row_group_size=group)


# --- other libraries ------------------------------------------------------------------------------


def to_pandas(d: Dataset, limit: int | None) -> Any:
    import pandas
    left = limit
    parts = []
    for part in d.iter_batches(batch_size=1 << 16, batch_format="pandas"):
        if left is not None:
            part = part.iloc[:left]
            left -= len(part)
        parts.append(part)
        if left == 0:
            break
    if parts:
        return pandas.concat(parts, ignore_index=True)
    return pandas.DataFrame({f.name: pandas.Series(dtype=_empty_type(f))
                             for f in d.rows.fields()})


def _empty_type(field: Field) -> str:
    return "object" if field.shape else formats.numpy_type(field)


def to_tf(d: Dataset, features: str | Sequence[str], labels: str | Sequence[str], options: Any
          ) -> Any:
    import numpy
    import tensorflow as tf
    chosen = d.select_columns(list(dict.fromkeys([*_names(features), *_names(labels)])))
    fields = {f.name: f for f in chosen.rows.fields()}
    batches = chosen.iter_batches(**options)

    def spec(name: str) -> Any:
        code = formats.numpy_type(fields[name])
        kind = tf.string if code == "str" else tf.as_dtype(numpy.dtype(code).name)
        return tf.TensorSpec((None, *fields[name].shape), kind, name=name)

    def pick(batch: dict[str, Any], given: str | Sequence[str]) -> Any:
        return batch[given] if isinstance(given, str) else {n: batch[n] for n in given}

    def specs(given: str | Sequence[str]) -> Any:
        return spec(given) if isinstance(given, str) else {n: spec(n) for n in given}
    return tf.data.Dataset.from_generator(
        lambda: ((pick(b, features), pick(b, labels)) for b in batches),
        output_signature=(specs(features), specs(labels)))


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)

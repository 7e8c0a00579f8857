# SPDX-License-Identifier: Apache-2.0
"""Parquet files by pyarrow's own reader: a block is a row group, read when it is asked for, and
only the columns that are wanted."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable, Sequence

from manta import _manta
from manta.data.dataset import Dataset
from manta.data.plan import Plan
from manta.data.source import Paths, _paths, reader


@reader
def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None) -> Dataset:
    """Parquet by pyarrow, from a file, a folder, a pattern, a list, or s3://…. Files have one
    schema. columns: only these, in this order."""
    given = Dataset.of(Plan(open_parquet, (_paths(paths),)))
    return given.select_columns(list(columns)) if columns else given


def open_parquet(paths: list[str]) -> _manta.Data:
    try:
        import pyarrow
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ImportError("read_parquet: pyarrow is not installed\n"
                          "hint: pip install pyarrow") from None
    files = [f for p in paths for f in _list(p)]
    groups: list[tuple[str, int]] = []
    mark = hashlib.sha256()
    schema: Any = None
    for file in files:
        opened = _open(file)
        schema = schema or opened.schema_arrow
        if not opened.schema_arrow.equals(schema):
            raise ValueError(f"{file}: its columns are not those of {files[0]}\n"
                             f"hint: read_parquet() of each, with columns=, and union()")
        for i in range(opened.num_row_groups):
            groups.append((file, i))
            mark.update(opened.metadata.row_group(i).num_rows.to_bytes(8, "little"))
        opened.close()
    plain = pyarrow.schema([_plain(f) for f in schema])
    empty = pyarrow.RecordBatchReader.from_batches(plain, [])
    return _manta.stream_data(empty, len(groups), _opener(groups, plain), f"parquet: {files[0]}",
                              int.from_bytes(mark.digest()[:8], "little"))


def _plain(field: Any) -> Any:
    return field.remove_metadata()


def _opener(groups: list[tuple[str, int]], schema: Any) -> Callable[[int, list[int]], object]:
    def open_group(block: int, wanted: list[int]) -> object:
        """Called by the threads that read."""
        import pyarrow
        file, group = groups[block]
        chosen = pyarrow.schema([schema.field(i) for i in wanted])
        opened = _open(file)
        batches = opened.iter_batches(row_groups=[group], columns=chosen.names)
        return pyarrow.RecordBatchReader.from_batches(
            chosen, (_as(batch, chosen) for batch in batches))
    return open_group


def _as(batch: Any, schema: Any) -> Any:
    """In the order of the schema, without the notes of the file."""
    import pyarrow
    return pyarrow.RecordBatch.from_arrays([batch.column(n) for n in schema.names], schema=schema)


# --- files ----------------------------------------------------------------------------------------


def _filesystem(path: str) -> tuple[Any, str]:
    from pyarrow import fs
    if "://" in path:
        found: tuple[Any, str] = fs.FileSystem.from_uri(path)
        return found
    return fs.LocalFileSystem(), path


def _open(file: str) -> Any:
    import pyarrow.parquet
    system, path = _filesystem(file)
    return pyarrow.parquet.ParquetFile(system.open_input_file(path))


def _list(path: str) -> list[str]:
    """The files of a path, in the order of their names."""
    import glob

    from pyarrow import fs
    if any(c in path for c in "*?[") and "://" not in path:
        found = sorted(glob.glob(path))
        if not found:
            raise FileNotFoundError(f"{path}: no file has such a name")
        return found
    system, inner = _filesystem(path)
    info = system.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{path}: there is no such file")
    if info.type == fs.FileType.File:
        return [path]
    prefix = path[:len(path) - len(inner)] if path.endswith(inner) else ""
    inside = [i.path for i in system.get_file_info(fs.FileSelector(inner, recursive=True))
              if i.type == fs.FileType.File and _is_data(i.path)]
    if not inside:
        raise FileNotFoundError(f"{path}: there is no Parquet file in this folder")
    return [prefix + p for p in sorted(inside)]


def _is_data(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith((".parquet", ".pq")) and not name.startswith((".", "_"))

# SPDX-License-Identifier: Apache-2.0
"""Parquet files by pyarrow's own reader: a block is a row group, read when it is asked for, and
only the columns that are wanted."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Callable, Sequence

from manta import _manta, _names
from manta.data import lists
from manta.data.dataset import Dataset
from manta.data.plan import Plan
from manta.data.source import Paths, _paths, _strings, reader


@reader
def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None) -> Dataset:
    """Parquet by pyarrow, from a file, a folder, a pattern, a list, or s3://…. Files have one
    schema. columns: only these, in this order. Lists of numbers that are all of one length are
    tensors."""
    wanted = None if columns is None else _strings(columns)
    given = Dataset.of(Plan(open_parquet, (_paths(paths), wanted)))
    return given if wanted is None else given.select_columns(wanted)


def open_parquet(paths: list[str], columns: list[str] | None = None) -> _manta.Data:
    try:
        import pyarrow
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ImportError("read_parquet: pyarrow is not installed\n"
                          "hint: pip install pyarrow") from None
    files = [f for p in paths for f in list_files(p)]
    groups: list[tuple[str, int]] = []
    mark = hashlib.sha256()
    schema: Any = None
    for file in files:
        opened = _open(file)
        found = pyarrow.schema(_chosen(opened.schema_arrow, columns))
        schema = schema or found
        if not found.equals(schema):
            raise ValueError(f"{file}: its columns are not those of {files[0]}\n"
                             f"hint: read_parquet() of each, with columns=, and union()")
        for i in range(opened.num_row_groups):
            groups.append((file, i))
            mark.update(opened.metadata.row_group(i).num_rows.to_bytes(8, "little"))
        opened.close()
    plain = pyarrow.schema([_plain(f, groups) for f in schema])
    empty = pyarrow.RecordBatchReader.from_batches(plain, [])
    return _manta.stream_data(empty, len(groups), _opener(groups, plain), f"parquet: {files[0]}",
                              int.from_bytes(mark.digest()[:8], "little"))


def _chosen(schema: Any, columns: list[str] | None) -> list[Any]:
    """What nobody wants need not be of a type that manta has."""
    if columns is None:
        return list(schema)
    for name in columns:
        if name not in schema.names:
            near = _names.nearest(name, schema.names)
            raise _manta.NoColumn(f"there is no column \"{name}\"" + (
                f"\nhint: the nearest name is \"{near}\"" if near else
                f"\nhint: there are {', '.join(schema.names[:20])}"))
    return [schema.field(name) for name in dict.fromkeys(columns)]


def _plain(field: Any, groups: list[tuple[str, int]]) -> Any:
    """Without the notes of the file. The length of lists is that of the first that there are."""
    if lists.is_list(field.type):
        for file, group in groups:
            column = _open(file).read_row_group(group, columns=[field.name]).column(0)
            if column.null_count < len(column):
                if (length := lists.length_of(column)) is None:
                    raise lists.wrong(f"{file}, row group {group}", field.name)
                return field.with_type(lists.fixed_type(field.type, length)).remove_metadata()
        raise lists.wrong(groups[0][0] if groups else "no rows", field.name)
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
            chosen, (_as(batch, chosen, f"{file}, row group {group}") for batch in batches))
    return open_group


def _as(batch: Any, schema: Any, where: str) -> Any:
    """In the order of the schema, without the notes of the file."""
    import pyarrow
    columns = [lists.fixed(where, f.name, batch.column(f.name), f.type)
               if lists.is_list(batch.column(f.name).type) else batch.column(f.name)
               for f in schema]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


# --- files ----------------------------------------------------------------------------------------


def _filesystem(path: str) -> tuple[Any, str]:
    from pyarrow import fs
    if path.startswith(("http://", "https://")):
        raise ValueError(f"{path}: Parquet is read from files and s3://, not from HTTP\n"
                         "hint: fetch the file first, or write it as CSV or JSON lines")
    if "://" in path:
        found: tuple[Any, str] = fs.FileSystem.from_uri(path)
        return found
    return fs.LocalFileSystem(), path


def _open(file: str) -> Any:
    import pyarrow
    import pyarrow.parquet
    system, path = _filesystem(file)
    try:
        return pyarrow.parquet.ParquetFile(system.open_input_file(path))
    except pyarrow.ArrowInvalid as e:
        raise ValueError(f"{file}: is no whole Parquet file: {e}\n"
                         "hint: was it written to its end? Write or fetch it again") from None


def list_files(path: str) -> list[str]:
    """The files of a path, in the order of their names. FileNotFoundError: there is none."""
    from pyarrow import fs
    if any(c in path for c in "*?["):
        return _matching(path)
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
        raise FileNotFoundError(f"{path}: there is no Parquet file in this folder\n"
                                "hint: their names end in .parquet or .pq")
    return [prefix + p for p in sorted(inside)]


def _matching(pattern: str) -> list[str]:
    """Files of this pattern, and those of folders that it names."""
    if "://" in pattern:
        found = _matching_keys(pattern)
    else:
        import glob
        found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise FileNotFoundError(f"{pattern}: no file has such a name\nhint: a folder is read with "
                                "all files below it; ** stands for any number of folders")
    files = [f for p in found for f in (list_files(p) if os.path.isdir(p) else [p])]
    return list(dict.fromkeys(files))


def _matching_keys(pattern: str) -> list[str]:
    import fnmatch

    from pyarrow import fs
    place, _, rest = pattern.partition("://")
    parts = rest.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(c in part for c in "*?["))
    system, base = _filesystem(f"{place}://{'/'.join(parts[:fixed])}")
    infos = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
    head = f"{place}://{'/'.join(parts[:fixed])}"

    def fits(names: list[str], words: list[str]) -> bool:
        if not words or not names:
            return not names and not words
        if words[0] == "**":
            return fits(names, words[1:]) or fits(names[1:], words)
        return fnmatch.fnmatchcase(names[0], words[0]) and fits(names[1:], words[1:])
    inside = [i.path[len(base):].strip("/") for i in infos if i.type == fs.FileType.File]
    return sorted(f"{head}/{p}" for p in inside if fits(p.split("/"), parts[fixed:]))


def _is_data(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith((".parquet", ".pq")) and not name.startswith((".", "_"))

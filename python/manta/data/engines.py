# SPDX-License-Identifier: Apache-2.0
"""Data sets out of what other libraries have: Arrow, pandas, torch, Hugging Face, Ray, Dask,
Spark.

What has an Arrow stream shares its memory. What is too large for the memory of one host is prepared
by its engine, written to files, and read from there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from typing import Any, Callable, Mapping, Sequence

from manta import _manta
from manta.data import lists, travel
from manta.data.columns import Column, column_of, frame_columns
from manta.data.dataset import Dataset
from manta.data.memory import from_items, open_columns
from manta.data.plan import Plan
from manta.data.source import reader

TORCH_BLOCK = 4096  # rows of a block of from_torch


# --- Arrow ----------------------------------------------------------------------------------------


@reader
def from_arrow(tables: Any) -> Dataset:
    """The rows of anything that has an Arrow stream or array: a table of pyarrow, a DataFrame of
    Polars or pandas, a relation of DuckDB, a DataFrame of DataFusion; or a list of them, one after
    the other. It is read now, and its memory is shared where the layout allows it."""
    if isinstance(tables, (list, tuple)):
        if not tables:
            raise ValueError("from_arrow: no table is given")
        parts = [from_arrow(t) for t in tables]
        return parts[0].union(*parts[1:])
    return Dataset.of(Plan(travel.open_rows, (travel.Rows(_manta.import_data(_stream(tables))),)))


def _stream(given: Any) -> object:
    given = lists.fixed_table("from_arrow", given)
    if hasattr(given, "__arrow_c_stream__"):
        return given
    if hasattr(given, "__arrow_c_array__"):
        return _manta.array_stream(*given.__arrow_c_array__())
    if hasattr(given, "collect"):  # a plan that was not run yet
        return _stream(given.collect())
    raise TypeError(f"from_arrow: a {type(given).__name__} has neither __arrow_c_stream__ nor "
                    "__arrow_c_array__\nhint: from_pandas, from_numpy, from_items")


@reader
def from_huggingface(dataset: Any) -> Dataset:
    """A data set of Hugging Face; one that streams is read to its end."""
    if isinstance(dataset, Mapping):
        raise TypeError(f"from_huggingface: these are several splits\nhint: "
                        f"from_huggingface(d[{next(iter(dataset), 'train')!r}])")
    if not hasattr(dataset, "num_rows"):
        return from_items(dataset)
    return from_arrow(dataset.with_format("arrow")[:])


# --- pandas ---------------------------------------------------------------------------------------


@reader
def from_pandas(dfs: Any) -> Dataset:
    """The rows of a DataFrame, without its index; or of several, one after the other."""
    if isinstance(dfs, (list, tuple)):
        if not dfs:
            raise ValueError("from_pandas: no DataFrame is given")
        parts = [from_pandas(d) for d in dfs]
        return parts[0].union(*parts[1:])
    return Dataset.of(Plan(open_columns, (len(dfs), frame_columns(dfs))))


# --- torch ----------------------------------------------------------------------------------------


@reader
def from_torch(dataset: Any) -> Dataset:
    """The items of a dataset of torch. A map-style one (with len() and []) is read in blocks when
    they are asked for, in every process; one that can only be gone over is read to its end now.

    An item that is a dict is a row of columns; a pair is the columns "x" and "y", a longer tuple
    "item0", "item1", …; anything else is the column "item"."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return from_items(_row(item) for item in dataset)
    return Dataset.of(Plan(open_torch, (dataset,)))


def open_torch(dataset: Any) -> _manta.Data:
    rows = len(dataset)
    if rows == 0:
        raise ValueError("from_torch: there are no items, and so no columns")
    blocks = -(-rows // TORCH_BLOCK)
    mark = hashlib.sha256(f"torch {rows}".encode()).digest()[:8]
    first = _columns([_row(dataset[0])])

    def open_block(block: int, wanted: list[int]) -> object:
        """Called by the threads that read."""
        start = block * TORCH_BLOCK
        items = [_row(dataset[i]) for i in range(start, min(start + TORCH_BLOCK, rows))]
        made = _columns(items)
        return _manta.columns(len(items), [tuple(made[i]) for i in wanted])
    return _manta.stream_data(_manta.columns(1, [tuple(c) for c in first]), blocks, open_block,
                              f"torch: {type(dataset).__name__}", int.from_bytes(mark, "little"))


def _row(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        found = {str(k): v for k, v in item.items()}
    elif isinstance(item, (list, tuple)) and len(item) == 2:
        found = {"x": item[0], "y": item[1]}
    elif isinstance(item, (list, tuple)):
        found = {f"item{i}": v for i, v in enumerate(item)}
    else:
        found = {"item": item}
    return {k: v.detach().cpu().numpy() if hasattr(v, "detach") else v for k, v in found.items()}


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    return [column_of(name, [r[name] for r in rows]) for name in rows[0]]


# --- other engines --------------------------------------------------------------------------------


def _by_files(name: str, write: Callable[[str], object],
              path: str | os.PathLike[str]) -> Dataset:
    """What `write` writes to a folder. A local or shared one appears when it is complete: a program
    that died on the way has not left half a data set."""
    from manta.data.parquet import list_files, read_parquet
    text = os.fspath(path).removeprefix("file://")
    taken = FileExistsError(f"{name}: {text} is not empty\nhint: read_parquet reads what is there; "
                            "name another folder, or remove this one")
    if "://" in text:
        with suppress(FileNotFoundError):
            list_files(text)
            raise taken
        write(text)
        return read_parquet(text)
    target = os.path.abspath(os.path.expanduser(text))
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise taken
    part = f"{target}.part"
    shutil.rmtree(part, ignore_errors=True)
    write(part)
    os.rename(part, target)  # an empty folder is replaced
    return read_parquet(target)


def from_ray(dataset: Any, path: str | os.PathLike[str] | None = None) -> Dataset:
    """The rows of a data set of Ray. path: a folder that every worker sees, or s3://…: Ray writes
    Parquet there, and it is read block by block; without one the rows are brought into memory.
    FileExistsError: the folder is not empty."""
    if path is not None:
        return _by_files("from_ray", dataset.write_parquet, path)
    import ray  # type: ignore[import-not-found]
    return from_arrow(list(ray.get(dataset.to_arrow_refs())))


def from_dask(frame: Any, path: str | os.PathLike[str] | None = None) -> Dataset:
    """The rows of a DataFrame of Dask. path: as of from_ray."""
    if path is not None:
        return _by_files("from_dask", lambda to: frame.to_parquet(to, write_index=False), path)
    return from_pandas(frame.compute())


def from_spark(frame: Any, path: str | os.PathLike[str] | None = None) -> Dataset:
    """The rows of a DataFrame of Spark. path: as of from_ray."""
    if path is not None:
        return _by_files("from_spark", frame.write.mode("append").parquet, path)
    return from_arrow(frame.toArrow()) if hasattr(frame, "toArrow") else from_pandas(
        frame.toPandas())

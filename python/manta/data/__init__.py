# SPDX-License-Identifier: Apache-2.0
"""Data sets: from files of any size to batches, each row once.

    from manta.data import col, read_csv

    ds = read_csv("data/*.csv").filter(col("age") > 30).random_shuffle(seed=1)
    for x, y in ds.to_torch(label_column="price", batch_size=1024):
        ...

Nothing is read before it is asked for, threads of C read ahead, and memory is bounded. numpy,
torch, pandas and pyarrow are imported when a format of theirs is asked for.
"""

from __future__ import annotations

from typing import Any

from manta.data.dataset import Dataset
from manta.data.engines import (from_arrow, from_dask, from_huggingface, from_pandas, from_ray,
                                from_spark, from_torch)
from manta.data.expression import Expression, col, lit, where
from manta.data.iterator import Batches
from manta.data.memory import from_items, from_numpy
from manta.data.parquet import read_parquet
from manta.data.schema import Schema
from manta.data.source import (range, range_tensor, read_binary_files, read_csv, read_fixed,
                               read_json, read_numpy, read_text, read_tfrecords)

__all__ = ["Batches", "Dataset", "Expression", "Schema", "col", "from_arrow",
           "from_dask", "from_huggingface", "from_items", "from_numpy", "from_pandas", "from_ray",
           "from_spark", "from_torch", "lit",
           "range", "range_tensor", "read_binary_files", "read_csv", "read_fixed", "read_json",
           "read_numpy", "read_parquet", "read_text", "read_tfrecords", "where"]

# Of Ray Data; they are not among the names that manta.data shows.
_OTHERS = ("ActorPoolStrategy", "DataContext", "DataIterator", "DatasetContext", "DatasetPipeline",
           "Datastream", "ExecutionOptions", "ExecutionResources", "MaterializedDataset",
           "TaskPoolStrategy")


def __getattr__(name: str) -> Any:
    if name in _OTHERS:
        from manta.data import placing
        return getattr(placing, name)
    from manta import _names
    raise AttributeError(_names.absent("manta.data", name, __all__))

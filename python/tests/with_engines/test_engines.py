# SPDX-License-Identifier: Apache-2.0
"""Rows of other libraries, with the real packages: in, through a run, and out again."""

from __future__ import annotations

import datetime
import pickle
import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest

import manta.data as data
from manta import sgd
from manta.sgd import Trainer

pytestmark = pytest.mark.deadline(600)

COLUMNS: dict[str, list[Any]] = {"i": list(range(100)), "x": [i / 4 for i in range(100)],
                                 "s": [f"wörd {i}" for i in range(100)],
                                 "b": [i % 3 == 0 for i in range(100)]}
WANTED = [dict(zip(COLUMNS, row)) for row in zip(*COLUMNS.values())]


def assert_rows(ds: data.Dataset) -> None:
    """Here, in a pickle, and in the workers of a run."""
    assert ds.take_all() == WANTED
    assert pickle.loads(pickle.dumps(ds)).take_all() == WANTED

    def train() -> list[Any]:
        return list(sgd.get_data_shard().iter_rows())

    with Trainer(None, num_workers=2, quiet=True) as trainer:
        first, second = trainer.run(train, dataset=ds)
    assert sorted(first + second, key=lambda r: r["i"]) == WANTED


# --- tables ---------------------------------------------------------------------------------------


def test_pyarrow() -> None:
    import pyarrow
    table = pyarrow.table(COLUMNS)
    assert_rows(data.from_arrow(table))
    assert_rows(data.from_arrow(table.to_batches()[0]))  # an array
    assert_rows(data.from_arrow(pyarrow.RecordBatchReader.from_batches(
        table.schema, table.to_batches(max_chunksize=7))))
    assert pyarrow.table(data.from_arrow(table)).to_pylist() == WANTED


def test_pandas() -> None:
    import pandas
    frame = pandas.DataFrame(COLUMNS)
    assert_rows(data.from_pandas(frame))
    assert data.from_pandas([frame, frame]).count() == 200
    assert data.from_arrow(frame).take_all() == WANTED
    back = data.from_pandas(frame).to_pandas()
    pandas.testing.assert_frame_equal(back, frame, check_dtype=False)
    assert len(data.from_pandas(frame).to_pandas(limit=7)) == 7


def test_pandas_types() -> None:
    import pandas
    when = datetime.datetime(2026, 1, 2, 3, 4, 5)
    frame = pandas.DataFrame({
        "whole": pandas.array([1, None, 3], dtype="Int64"), "kind": pandas.Categorical(list("aba")),
        "when": pandas.to_datetime([when, None, when]), "flag": pandas.array([True, None, False],
                                                                             dtype="boolean")})
    rows = data.from_pandas(frame).take_all()
    assert [r["whole"] for r in rows] == [1, None, 3]
    assert [r["kind"] for r in rows] == ["a", "b", "a"]
    assert [r["flag"] for r in rows] == [True, None, False]
    assert rows[1]["when"] is None and pandas.Timestamp(rows[0]["when"]) == when


def test_polars() -> None:
    import polars
    frame = polars.DataFrame(COLUMNS)
    assert_rows(data.from_arrow(frame))
    assert_rows(data.from_arrow(frame.lazy()))
    assert polars.DataFrame(data.from_arrow(frame)).to_dicts() == WANTED


def test_duckdb() -> None:
    import duckdb
    import pyarrow
    table = pyarrow.table(COLUMNS)
    with duckdb.connect() as base:
        base.register("t", table)
        assert_rows(data.from_arrow(base.sql("select * from t order by i")))


def test_datafusion() -> None:
    import datafusion
    import pyarrow
    context = datafusion.SessionContext()
    frame = context.from_arrow(pyarrow.table(COLUMNS))
    assert_rows(data.from_arrow(frame.sort(datafusion.col("i"))))


def test_huggingface() -> None:
    import datasets
    made = datasets.Dataset.from_dict(COLUMNS)
    assert_rows(data.from_huggingface(made))
    few = data.from_huggingface(made.filter(lambda row: row["i"] < 5).shuffle(seed=1))
    assert sorted(r["i"] for r in few.take_all()) == list(range(5))
    assert data.from_huggingface(made.to_iterable_dataset()).count() == 100
    with pytest.raises(TypeError, match=r"d\['train'\]"):
        data.from_huggingface(datasets.DatasetDict({"train": made}))


# --- engines --------------------------------------------------------------------------------------


def test_dask(tmp_path: Path) -> None:
    import dask.dataframe
    import pandas
    frame = dask.dataframe.from_pandas(pandas.DataFrame(COLUMNS), npartitions=4)
    assert_rows(data.from_dask(frame))
    read = data.from_dask(frame[frame["i"] >= 0], path=tmp_path / "prepared")
    assert read.num_blocks() == 4
    assert_rows(read)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    import ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_ray(ray: Any, tmp_path: Path) -> None:
    import pyarrow
    made = ray.data.from_arrow(pyarrow.table(COLUMNS)).map_batches(lambda b: b)
    assert_rows(data.from_ray(made))
    assert_rows(data.from_ray(made, path=tmp_path / "prepared"))


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    import dask.dataframe
    import pandas
    frame = dask.dataframe.from_pandas(pandas.DataFrame(COLUMNS), npartitions=2)
    (tmp_path / "given").mkdir()  # an empty one is fine
    data.from_dask(frame, tmp_path / "given")
    with pytest.raises(FileExistsError, match="from_dask: .*given is not empty\nhint: read_parq"):
        data.from_dask(frame, tmp_path / "given")

    def die(to: str, **options: Any) -> None:
        Path(to).mkdir()
        (Path(to) / "half.parquet").write_bytes(b"PAR1")
        raise OSError("no space left")

    frame.to_parquet, whole = die, frame.to_parquet
    with pytest.raises(OSError, match="no space left"):
        data.from_dask(frame, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    frame.to_parquet = whole  # what is left of the first try is not in it
    assert_rows(data.from_dask(frame, f"file://{tmp_path}/other"))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if not shutil.which("java"):
        pytest.skip("no Java: scripts/install-deps engines installs it")
    session = (sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
               .config("spark.driver.host", "127.0.0.1")
               .config("spark.sql.shuffle.partitions", "3").getOrCreate())
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends with it, at the latest with this process
    gateway.proc.wait(60)


def test_spark(spark: Any, tmp_path: Path) -> None:
    rows = [tuple(row.values()) for row in WANTED]
    frame = spark.createDataFrame(rows, "i long, x double, s string, b boolean")
    assert_rows(data.from_spark(frame.orderBy("i")))
    read = data.from_spark(frame.repartitionByRange(3, "i").sortWithinPartitions("i"),
                           path=tmp_path / "prepared")
    assert read.num_blocks() == 3
    assert_rows(read)
    with pytest.raises(FileExistsError, match="from_spark: "):
        data.from_spark(frame, path=tmp_path / "prepared")


def test_spark_types(spark: Any, tmp_path: Path) -> None:
    """Nulls, dates and what Spark has types of its own for; the same in memory and by files."""
    frame = spark.sql("select 1 as i, cast(2 as short) as small, cast(null as double) as none, "
                      "date '2026-01-02' as day, cast('ab' as binary) as raw, "
                      "timestamp '2026-01-02 03:04:05' as at, cast(1.5 as float) as f")
    here, = data.from_spark(frame).take_all()
    there, = data.from_spark(frame, path=tmp_path / "types").take_all()
    assert here == there
    assert (here["i"], here["small"], here["none"], here["raw"]) == (1, 2, None, b"ab")
    assert here["f"] == 1.5 and str(here["day"]).startswith("2026-01-02")


# --- functions and files --------------------------------------------------------------------------


def test_functions_over_batches_of_other_libraries() -> None:
    import pyarrow.compute
    ds = data.from_items(WANTED)

    def double(table: Any) -> Any:
        return table.set_column(0, "i", pyarrow.compute.multiply(table["i"], 2))

    assert [r["i"] for r in ds.map_batches(double, batch_format="pyarrow").take_all()] == list(
        range(0, 200, 2))
    frames = ds.map_batches(lambda df: df[df["b"]].assign(i=df["i"] + 1), batch_format="pandas")
    assert [r["i"] for r in frames.take_all()] == [i + 1 for i in range(0, 100, 3)]
    assert ds.add_column("y", lambda df: df.i + df.x).take(2)[1]["y"] == 1.25


def test_parquet(tmp_path: Path) -> None:
    ds = data.from_items(WANTED)
    ds.write_parquet(tmp_path / "one.parquet", row_group_size=30)
    read = data.read_parquet(tmp_path / "one.parquet")
    assert read.num_blocks() == 4
    assert_rows(read)
    for rank in range(3):
        ds.shard(rank, 3).write_parquet(tmp_path / "parts")
    assert sorted(r["i"] for r in data.read_parquet(tmp_path / "parts").take_all()) == list(
        range(100))

# SPDX-License-Identifier: Apache-2.0
"""Parquet by pyarrow, and batches as pyarrow and pandas have them."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import manta
from manta import data
from manta.data import col
from manta.data import parquet as reader

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pandas = pytest.importorskip("pandas", reason="pandas is not installed")

ROWS = 1000


def table(first: int = 0) -> Any:
    numbers = range(first, first + ROWS)
    return pyarrow.table({
        "i": list(numbers), "x": [i / 3 for i in numbers], "s": [f"w{i % 7}" for i in numbers],
        "n": [None if i % 5 else i for i in numbers], "b": [i % 2 == 0 for i in numbers],
        "when": pyarrow.array([i * 86_400_000 for i in numbers], pyarrow.timestamp("ms")),
        "word": pyarrow.array([f"v{i % 3}" for i in numbers]).dictionary_encode()})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parquet.write_table(table(), tmp_path / "a.parquet", row_group_size=100)
    parquet.write_table(table(ROWS), tmp_path / "b.parquet", row_group_size=300)
    (tmp_path / "_metadata").write_bytes(b"not data")
    return tmp_path


def test_row_groups_are_blocks(folder: Path) -> None:
    d = data.read_parquet(folder)
    assert d.num_blocks() == 14 and d.count() == 2 * ROWS
    assert [r["i"] for r in d.take_all()] == list(range(2 * ROWS))
    assert d.take(1) == [{"i": 0, "x": 0.0, "s": "w0", "n": 0, "b": True,
                          "when": d.take_batch(1)["when"][0], "word": "v0"}]
    assert str(d.take_batch(2)["when"][1]) == "1970-01-02T00:00:00.000"
    assert data.read_parquet([folder / "b.parquet", folder / "a.parquet"]).take(1)[0]["i"] == ROWS
    assert data.read_parquet(f"{folder}/b*.parquet").count() == ROWS


def test_only_what_is_wanted_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    real = parquet.ParquetFile.iter_batches

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(list(kwargs["columns"]))
        return real(self, *args, **kwargs)
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", spy)
    d = data.read_parquet(folder / "a.parquet", columns=["x", "i"]).filter(col("i") < 3)
    assert d.take_all() == [{"x": i / 3, "i": i} for i in range(3)]
    assert asked and all(sorted(names) == ["i", "x"] for names in asked)


def test_steps_positions_and_travel(folder: Path) -> None:
    d = data.read_parquet(folder).random_shuffle(seed=4).filter(col("n").is_not_null())
    whole = [r["i"] for r in d.take_all()]
    assert sorted(whole) == list(range(0, 2 * ROWS, 5)) != whole
    it = d.iter_batches(batch_size=64, batch_format="dict", threads=2)
    seen = [i for _ in range(3) for i in next(it)["i"]]
    other = pickle.loads(pickle.dumps(d)).iter_batches(batch_size=50, batch_format="dict")
    other.load_state_dict(it.state_dict())
    assert seen + [i for b in other for i in b["i"]] == whole


def test_threads_of_python_go_on_meanwhile(folder: Path) -> None:
    """Reading takes the GIL now and then, and whoever waits for it holds it not."""
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
    thread = threading.Thread(target=count)
    thread.start()
    d = data.read_parquet(folder)
    for _ in range(3):
        assert sum(len(b["i"]) for b in d.iter_batches(batch_size=100, threads=4)) == 2 * ROWS
    it = d.iter_batches(batch_size=10, threads=4)
    next(it)
    it.close()  # in the middle of reading
    done.set()
    thread.join(20)
    assert counted > 0 and not thread.is_alive()


def test_what_cannot_be(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none.parquet"):
        data.read_parquet(folder / "none.parquet")
    with pytest.raises(FileNotFoundError, match="no file has such a name"):
        data.read_parquet(f"{folder}/*.pq")
    parquet.write_table(pyarrow.table({"other": [1]}), folder / "c.parquet")
    with pytest.raises(ValueError, match=r"c\.parquet: its columns are not those of"):
        data.read_parquet(folder)
    parquet.write_table(pyarrow.table({"l": [[1], [2, 3]]}), tmp_path / "list.parquet")
    with pytest.raises(ValueError, match="column 'l' has lists of different lengths.*\nhint: pad"):
        data.read_parquet(tmp_path / "list.parquet")


def test_a_file_that_is_gone(folder: Path) -> None:
    d = data.read_parquet(folder / "a.parquet")
    (folder / "a.parquet").unlink()
    with pytest.raises(Exception, match="a.parquet"):
        d.take_all()


# --- batches --------------------------------------------------------------------------------------


def test_tables_and_frames(folder: Path) -> None:
    d = data.read_parquet(folder / "a.parquet")
    wanted = table().set_column(6, "word", table()["word"].cast("string"))
    batches = list(d.iter_batches(batch_size=300, batch_format="pyarrow"))
    assert pyarrow.concat_tables(batches).cast(wanted.schema).equals(wanted)
    assert pyarrow.table(d).cast(wanted.schema).equals(wanted)
    frame = pandas.concat(list(d.iter_batches(batch_size=300, batch_format="pandas")))
    assert list(frame["i"]) == list(range(ROWS)) and frame["n"].isna().sum() == 800
    assert frame["when"].iloc[1] == pandas.Timestamp("1970-01-02")


def test_tensors_are_arrows_tensors() -> None:
    numpy = pytest.importorskip("numpy")
    a = numpy.arange(24, dtype="f4").reshape(4, 2, 3)
    got = pyarrow.table(data.from_numpy({"t": a}))["t"]
    assert got.combine_chunks().to_numpy_ndarray().tolist() == a.tolist()


def test_folders_patterns_and_what_is_no_parquet(tmp_path: Path) -> None:
    for part in ("k=1", "k=2"):
        data.from_items([{"a": i} for i in range(3)]).write_parquet(tmp_path / "all" / part)
    for path in (tmp_path / "all", tmp_path / "all" / "*", tmp_path / "all" / "**" / "*.parquet"):
        assert data.read_parquet(path).count() == 6
    uri = f"file://{tmp_path}/all/*/*.parquet"
    assert len(reader._matching_keys(uri)) == 2
    (tmp_path / "bad.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match=r"bad\.parquet: is no whole Parquet file: .*\nhint: "):
        data.read_parquet(tmp_path / "bad.parquet")
    with pytest.raises(FileNotFoundError, match=r"none\*: no file has such a name\nhint: "):
        data.read_parquet(tmp_path / "none*")
    with pytest.raises(ValueError, match="not from HTTP\nhint: fetch the file"):
        data.read_parquet("http://localhost/x.parquet")


def test_lists_of_one_length_are_tensors(tmp_path: Path) -> None:
    good = pyarrow.table({"e": [None, [1.0, 2.0], [3.0, 4.0]], "ok": [[True, False]] * 3,
                          "y": [0, 1, 2]})
    odd = pyarrow.table({"e": [[1.0, 2.0], [3.0], [4.0]], "ok": [[True, False]] * 3,
                         "y": [3, 4, 5]})
    parquet.write_table(good, tmp_path / "a.parquet", row_group_size=2)
    d = data.read_parquet(tmp_path)
    assert d.schema().types == ["f64[2]", "u8[2]", "i64"]
    assert [r["e"] if r["e"] is None else r["e"].tolist() for r in d.take_all()] == [
        None, [1, 2], [3, 4]]
    x, y = next(data.from_arrow(good.slice(1)).drop_columns("ok").to_torch(batch_size=2))
    assert x.tolist() == [[1, 2], [3, 4]] and y.tolist() == [[1], [2]]
    made = d.select_columns("y").map_batches(lambda t: good, batch_format="pyarrow")
    assert made.schema().types == ["f64[2]", "u8[2]", "i64"]
    parquet.write_table(odd, tmp_path / "b.parquet", row_group_size=3)
    said = r"b\.parquet, row group 0: column 'e' has lists of different lengths.*\nhint: pad"
    with pytest.raises(Exception, match=said):
        data.read_parquet(tmp_path).take_all()
    with pytest.raises(ValueError, match=said):
        data.read_parquet(tmp_path / "b.parquet")
    assert data.read_parquet(tmp_path, columns=["y"]).count() == 6


def test_columns_that_nobody_wants_may_be_anything(tmp_path: Path) -> None:
    table = pyarrow.table({"s": [{"a": 1}], "words": [["x"]], "yes": [1], "no": [2.5]})
    parquet.write_table(table, tmp_path / "x.parquet")
    assert data.read_parquet(tmp_path, columns=["no", "yes"]).take_all() == [{"no": 2.5, "yes": 1}]
    with pytest.raises(manta.Error, match='column "s" has the Arrow type "\\+s".*\nhint: '):
        data.read_parquet(tmp_path)
    parquet.write_table(pyarrow.table({"yes": [7], "more": ["x"]}), tmp_path / "y.parquet")
    assert [r["yes"] for r in data.read_parquet(tmp_path, columns=["yes"]).take_all()] == [1, 7]
    with pytest.raises(manta.NoColumn, match='no column "yess"\nhint: the nearest name is "yes"'):
        data.read_parquet(tmp_path, columns=["yess"])

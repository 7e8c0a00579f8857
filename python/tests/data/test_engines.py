# SPDX-License-Identifier: Apache-2.0
"""Data sets out of what other libraries have, and out into files; those that are not installed here
are tested in with_engines/."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Iterator

import pytest

import manta.data as data
from manta import sgd
from manta.sgd import Trainer

numpy = pytest.importorskip("numpy", reason="numpy is not installed")


class Stream:
    """Something of another library, with no more than its Arrow stream."""

    def __init__(self, of: data.Dataset) -> None:
        self.of = of

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.of.__arrow_c_stream__()


ROWS = [{"i": i, "x": i / 2, "s": f"w{i}", "b": i % 2 == 0, "raw": bytes([i]),
         "none": None if i % 3 else i, "t": numpy.full((2, 3), i, "f4")} for i in range(20)]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v.tolist() if hasattr(v, "tolist") else v for k, v in r.items()} for r in rows]
    return plain(found) == plain(wanted)


def test_arrow_streams_and_arrays() -> None:
    ds = data.from_arrow(Stream(data.from_items(ROWS)))
    assert same(ds.take_all(), ROWS)
    assert data.from_arrow([Stream(ds), Stream(ds)]).count() == 40
    with pytest.raises(TypeError, match="neither __arrow_c_stream__ nor"):
        data.from_arrow(3)


def test_rows_in_memory_travel() -> None:
    """All types, slices that begin inside of a byte, and nulls."""
    ds = data.from_arrow(Stream(data.from_items(ROWS)))
    assert same(pickle.loads(pickle.dumps(ds)).take_all(), ROWS)
    part = data.from_arrow(Stream(ds.filter(data.col("i") > 2)))
    assert same(pickle.loads(pickle.dumps(part)).take_all(), ROWS[3:])
    none = data.from_arrow(Stream(ds.limit(0)))
    assert pickle.loads(pickle.dumps(none)).schema() == ds.schema()

    def train() -> int:
        return sum(r["i"] for r in sgd.get_data_shard().iter_rows())

    with Trainer(None, num_workers=2, quiet=True) as trainer:
        assert sum(trainer.run(train, dataset=Stream(ds))) == sum(range(20))


def test_torch_datasets() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, y = torch.arange(20.0).view(10, 2), torch.arange(10)
    ds = data.from_torch(torch.utils.data.TensorDataset(x, y))
    assert ds.columns() == ["x", "y"] and ds.count() == 10
    for a, b in ds.to_torch(batch_size=10):
        assert torch.equal(a, x) and torch.equal(b.flatten(), y)
    assert pickle.loads(pickle.dumps(ds)).count() == 10

    class Words(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[Any]:
            yield from ({"w": c} for c in "abc")

    assert data.from_torch(Words()).take_all() == [{"w": c} for c in "abc"]
    assert data.from_torch([1.5, 2.5]).take_all() == [{"item": 1.5}, {"item": 2.5}]


def test_csv_and_json_are_written(tmp_path: Path) -> None:
    plain = [{k: v for k, v in r.items() if k not in ("t", "raw")} for r in ROWS]
    ds = data.from_items(plain).add_column("s", lambda b: [f'{v},"q"\n' for v in b["s"]],
                                           batch_format="numpy")
    wanted = [{**r, "s": f'{r["s"]},"q"\n'} for r in plain]
    ds.write_csv(tmp_path / "one.csv")
    assert data.read_csv(tmp_path / "one.csv").take_all() == wanted
    for rank in range(2):
        ds.shard(rank, 2).write_json(tmp_path / "parts")
    assert len(list((tmp_path / "parts").iterdir())) == 2
    found = data.read_json(tmp_path / "parts").take_all()
    assert sorted(found, key=lambda r: r["i"]) == wanted
    data.from_items(ROWS).drop_columns("raw").write_json(tmp_path / "t.json")
    assert '"t": [[3.0, 3.0, 3.0], [3.0' in (tmp_path / "t.json").read_text()
    with pytest.raises(TypeError, match="column 't' has tensors"):
        data.from_items(ROWS).write_csv(tmp_path / "no.csv")
    assert not (tmp_path / "no.csv").exists()
    raw = data.from_items([{"b": b"text"}, {"b": b"\xff\xfe"}])
    for write in (raw.write_csv, raw.write_json):
        with pytest.raises(ValueError, match=r"no UTF-8 \(b'\\xff.*\nhint: write_parquet"):
            write(tmp_path / "raw")

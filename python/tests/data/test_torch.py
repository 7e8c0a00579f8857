# SPDX-License-Identifier: Apache-2.0
"""(x, y) tensors of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manta import data
from manta.data import Dataset, col, from_items

torch = pytest.importorskip("torch", reason="torch is not installed")
numpy = pytest.importorskip("numpy")


def table(n: int = 10) -> Dataset:
    return from_items([{"a": i, "b": i / 2, "c": i % 2 == 0, "y": 10 * i} for i in range(n)])


def test_the_last_column_is_y() -> None:
    pairs = list(table().to_torch(batch_size=4))
    assert [x.shape for x, _ in pairs] == [(4, 3), (4, 3), (2, 3)]
    x, y = pairs[1]
    assert x.dtype == torch.float32 and x.is_contiguous() and y.dtype == torch.int64
    assert x.tolist() == [[4, 2, 1], [5, 2.5, 0], [6, 3, 1], [7, 3.5, 0]]
    assert y.tolist() == [[40], [50], [60], [70]]


def test_columns_are_chosen() -> None:
    x, y = next(table().to_torch(label_column="b", feature_columns=["y", "a"], batch_size=3))
    assert x.tolist() == [[0, 0], [10, 1], [20, 2]]
    assert y.dtype == torch.float32 and y.tolist() == [[0], [0.5], [1]]
    x, y = next(table().to_torch(label_column="a"))
    assert x.shape == (1, 3) and y.shape == (1, 1)
    x, y = next(table().to_torch(label_column="a", feature_columns=["a", "b"], batch_size=2))
    assert x[:, 0].tolist() == y[:, 0].tolist() == [0, 1]


def test_x_may_be_several_tensors() -> None:
    x, y = next(table().to_torch(label_column="y", feature_columns=[["a"], ["b", "a"]],
                                 batch_size=2))
    assert isinstance(x, list) and [t.tolist() for t in x] == [[[0], [1]], [[0, 0], [0.5, 1]]]
    x, y = next(table().to_torch(
        label_column="y", feature_columns={"ids": "a", "rest": ["b", "c"]}, batch_size=2,
        feature_column_dtypes={"ids": torch.int32}, label_column_dtype=torch.float64,
        unsqueeze_label_tensor=False))
    assert x["ids"].dtype == torch.int32 and x["ids"].tolist() == [[0], [1]]
    assert x["rest"].dtype == torch.float32 and x["rest"].shape == (2, 2)
    assert y.dtype == torch.float64 and y.tolist() == [0, 10]
    short = [x for x, _ in table(3).to_torch(feature_columns=[["a"], ["b"]], batch_size=2)][-1]
    assert [t.tolist() for t in short] == [[[2]], [[1]]]
    with pytest.raises(ValueError, match="1 feature_column_dtypes for 2 tensors\nhint: one f"):
        table().to_torch(feature_columns=[["a"], ["b"]], feature_column_dtypes=[torch.float])
    with pytest.raises(TypeError, match="has no argument 'label'\nhint: .*label_column"):
        table().to_torch(label="y")  # type: ignore[call-arg]


def test_large_integers_stay_what_they_are() -> None:
    """float32 has 24 bits."""
    d = from_items([{"id": 2 ** 40 + i, "y": 0.5} for i in range(3)])
    x, _ = next(d.to_torch(feature_columns="id", feature_column_dtypes=torch.long, batch_size=3))
    assert x[:, 0].tolist() == [2 ** 40, 2 ** 40 + 1, 2 ** 40 + 2]


@pytest.mark.parametrize("options", [{}, {"label_column": "a"}, {"feature_columns": ["b"]},
                                     {"local_shuffle_buffer_size": 10}], ids=str)
def test_an_epoch_with_a_new_iterator_parses_nothing(tmp_path: Path, options: dict[str, Any]
                                                      ) -> None:
    (tmp_path / "a.csv").write_text("a,b,y\n" + "".join(f"{i},{i / 2},1\n" for i in range(2000)))
    d = data.read_csv(tmp_path / "a.csv")
    read = []
    for _ in range(3):
        rows = sorted(x[0, 0].item() for x, _ in d.to_torch(batch_size=1, **options))
        assert len(rows) == 2000 and rows[0] == 0
        read.append(d.stats()["bytes"])
    assert read[0] == read[1] == read[2] > 10000


def test_text_is_parsed_to_what_tensors_have(tmp_path: Path) -> None:
    """With the same bits; not where something else looks at the numbers first."""
    (tmp_path / "a.csv").write_text(
        "a,b,n,y\n" + "".join(f"{i / 3 + 1e-9},{i * 0.1:.17g},{i},{i / 7}\n" for i in range(999)))
    d = data.read_csv(tmp_path / "a.csv")
    (rows,) = d.iter_batches(999)
    it = d.to_torch(batch_size=999)
    x, y = next(it)
    assert "3 columns as f32" in it._plan.data().explain()
    assert x.numpy().tobytes() == numpy.stack([rows[k] for k in "abn"], 1).astype("f4").tobytes()
    assert y.numpy().tobytes() == rows["y"].astype("f4").tobytes()
    for other in (d.to_torch(feature_column_dtypes=torch.float64, label_column="n"),
                  d.filter(col("a") > 0.1).to_torch(), d.add_column("z", col("a") * 2).to_torch(),
                  table().to_torch()):
        assert "as f32" not in other._plan.data().explain()
    assert d.schema().types == ["f64", "f64", "i64", "f64"]


def test_only_what_is_wanted_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,text,y\n1,x,2\n3,y,4\n")
    d = data.read_csv(tmp_path / "a.csv")
    it = d.to_torch(feature_columns=["a"])
    assert "2 of 3 columns: a, y" in it._plan.data().explain()
    with pytest.raises(TypeError, match="column 'text' has text.*\nhint: feature_columns"):
        d.to_torch()
    with pytest.raises(KeyError, match='no column "z"'):
        d.to_torch(label_column="z")
    with pytest.raises(ValueError, match="no column beside 'a' for x"):
        d.select_columns("a").to_torch()
    with pytest.raises(ValueError, match="batch_size=0"):
        d.to_torch(batch_size=0)


def test_tensors_keep_their_shape() -> None:
    images = numpy.random.default_rng(1).integers(0, 255, (6, 2, 3), "u1")
    d = data.from_numpy({"image": images, "label": numpy.arange(6)})
    x, y = next(d.to_torch(batch_size=6))
    assert x.shape == (6, 2, 3) and torch.equal(x, torch.from_numpy(images).float())
    x, _ = next(d.add_column("one", 1 + 0 * col("label")).to_torch(label_column="label",
                                                                     batch_size=6))
    assert x.shape == (6, 7) and x[:, 6].tolist() == [1] * 6


def test_null_is_nan() -> None:
    d = from_items([{"a": None, "b": 1, "y": 1.0}, {"a": 2, "b": None, "y": None}])
    x, y = next(d.to_torch(batch_size=2))
    assert torch.isnan(x).tolist() == [[True, False], [False, True]]
    assert torch.isnan(y).tolist() == [[False], [True]]


def test_null_is_no_class() -> None:
    d = from_items([{"x": 1.0, "y": 0}, {"x": 2.0, "y": None}])
    with pytest.raises(ValueError, match=r'column "y" has nulls.*\nhint: filter\(col\("y"\).is'):
        list(d.to_torch(batch_size=2))
    assert d.filter(col("y").is_not_null()).to_torch(batch_size=2).__next__()[1].tolist() == [[0]]
    _, y = next(d.to_torch(batch_size=2, label_column_dtype=torch.float32))
    assert y[0].item() == 0 and y[1].isnan().item()
    with pytest.raises(ValueError, match="batch_size=0"):
        d.iter_batches(0)


def test_batches_are_their_own() -> None:
    """What is done to one does not show in another, or in the data set."""
    it = table().to_torch(batch_size=5)
    first = list(it)
    for x, _ in first:
        x.zero_()
    assert sum(x.sum().item() for x, _ in it) == 45 * 1.5 + 5


def test_epochs_tails_and_positions() -> None:
    d = table(100).random_shuffle(seed=2)
    it = d.to_torch(batch_size=8)
    first, second = [torch.cat([y for _, y in it]) for _ in range(2)]
    assert not torch.equal(first, second) and torch.equal(first.sort(0)[0], second.sort(0)[0])
    it.set_epoch(0)
    seen = [y for _, (_, y) in zip(range(5), it)]
    other = d.to_torch(batch_size=3)
    other.load_state_dict(it.state_dict())
    assert torch.equal(torch.cat([*seen, *(y for _, y in other)]), first)
    assert [len(x) for x, _ in d.to_torch(batch_size=30, drop_last=True)] == [30, 30, 30]
    assert [len(x) for x, _ in d.to_torch(batch_size=30, tail="pad")] == [30] * 4
    mixed = torch.cat([y for _, y in table(100).to_torch(batch_size=8, shuffle_buffer=20)])
    assert sorted(mixed[:20, 0].tolist()) == list(range(0, 200, 10)) != mixed[:20, 0].tolist()
    ahead = torch.cat([y for _, y in d.to_torch(batch_size=8, prefetch_batches=3, threads=2)])
    assert torch.equal(ahead, first)


def test_shards_have_equally_many_batches() -> None:
    d = table(50)
    parts = [[y[:, 0].tolist() for _, y in d.shard(r, 2).to_torch(batch_size=8)] for r in (0, 1)]
    assert [len(p) for p in parts] == [4, 4]
    assert sorted(v for p in parts for b in p for v in b) == list(range(0, 500, 10))


def test_a_dict_of_tensors() -> None:
    batch = next(table().iter_torch_batches(batch_size=3))
    assert batch["a"].dtype == torch.int64 and batch["b"].dtype == torch.float64
    assert batch["c"].tolist() == [True, False, True]
    batch["a"].zero_()  # no memory of the data set's
    assert next(table().iter_torch_batches(batch_size=3))["a"].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="column 's' has text"):
        next(from_items([{"s": "x"}]).iter_torch_batches())


def test_a_dict_of_tensors_of_other_types_or_collated() -> None:
    types = {"a": torch.float16}
    batch = next(table().iter_torch_batches(batch_size=3, dtypes=types, device="cpu"))
    assert batch["a"].dtype == torch.float16 and batch["b"].dtype == torch.float64
    batch = next(table().iter_torch_batches(batch_size=3, dtypes=torch.float32))
    assert {t.dtype for t in batch.values()} == {torch.float32}
    words = from_items([{"s": "x" * i, "n": i} for i in range(4)])

    def lengths(batch: dict[str, numpy.ndarray]) -> tuple[list[int], torch.Tensor]:
        batch["n"] += 1  # its own memory
        return [len(s) for s in batch["s"]], torch.as_tensor(batch["n"])

    (first, n), (second, _) = words.iter_torch_batches(batch_size=2, collate_fn=lengths)
    assert first + second == [0, 1, 2, 3] and n.tolist() == [1, 2]
    with pytest.raises(ValueError, match="collate_fn makes the tensors.*\nhint: leave dtypes= out"):
        words.iter_torch_batches(collate_fn=lengths, dtypes=types)
    with pytest.raises(TypeError, match="a dtype of torch is wanted"):
        words.iter_torch_batches(dtypes={"n": "float32"})


def test_x_and_y_belong_together() -> None:
    """Least squares over shuffled batches find what the rows were made of."""
    rows = [{"a": i / 50, "b": 1.0, "y": 3 * i / 50 - 2} for i in range(100)]
    pairs = list(from_items(rows).random_shuffle().to_torch(batch_size=20))
    left = sum(x.T @ x for x, _ in pairs)
    right = sum(x.T @ y for x, y in pairs)
    assert torch.linalg.solve(left, right)[:, 0].tolist() == pytest.approx([3, -2], abs=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_batches_are_copied_ahead_to_a_gpu() -> None:
    d = table(1000).random_shuffle(seed=1)
    here = list(d.to_torch(batch_size=64))
    it = d.to_torch(batch_size=64, device="cuda", prefetch_batches=3)
    for (x, y), (a, b) in zip(it, here, strict=True):
        assert x.is_cuda and y.is_cuda and torch.equal(x.cpu(), a) and torch.equal(y.cpu(), b)
    it.set_epoch(0)
    seen = [y.cpu() for _, (_, y) in zip(range(4), it)]
    other = d.to_torch(batch_size=64)
    other.load_state_dict(it.state_dict())
    rest = [y for _, y in other]
    assert torch.equal(torch.cat(seen + rest), torch.cat([b for _, b in here]))


def test_stats_have_batches_of_chosen_columns() -> None:
    d = data.from_items([{"a": i, "b": i, "y": 2 * i} for i in range(10)])
    assert len(list(d.to_torch(label_column="y", feature_columns=["a"], batch_size=5))) == 2
    assert "rows 10, batches 2" in str(d.stats())

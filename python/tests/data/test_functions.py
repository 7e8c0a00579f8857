# SPDX-License-Identifier: Apache-2.0
"""Steps by functions of the user's: what they are given, what they may give, what they raise."""

from __future__ import annotations

import datetime
import pickle
import threading
import traceback
from typing import Any, Iterator

import pytest

import manta.data as data
from manta.data import col

numpy = pytest.importorskip("numpy", reason="numpy is not installed")
Rows = list[dict[str, Any]]

FACTOR = 10  # a global that functions look at


def numbers(n: int = 10) -> data.Dataset:
    return data.from_items([{"a": i, "s": f"w{i}"} for i in range(n)])


# --- rows -----------------------------------------------------------------------------------------


def test_rows_are_filtered() -> None:
    rest = 1
    kept = numbers().filter(lambda row: row["a"] % 3 == rest)
    assert kept.take_all() == [{"a": i, "s": f"w{i}"} for i in (1, 4, 7)]
    assert kept.count() == 3
    assert kept.filter(col("a") > 1).filter(lambda row: row["s"] != "w7").take_all() == [
        {"a": 4, "s": "w4"}]
    assert "filter by filter(" in kept.explain()


def test_rows_are_mapped() -> None:
    mapped = numbers(3).map(lambda row: {"b": row["a"] * FACTOR, "none": None, "x": row["a"] / 2})
    assert mapped.take_all() == [{"b": 10 * i, "none": None, "x": i / 2} for i in range(3)]
    assert mapped.schema().types == ["i64", "f64", "f64"]
    assert numbers(2).map(lambda row: row["a"] + 1).take_all() == [{"item": 1}, {"item": 2}]


def test_columns_of_rows_may_be_missing_or_tensors() -> None:
    made = numbers(3).map(lambda row: {"t": numpy.full(2, row["a"], "f4")} | (
        {"odd": row["s"]} if row["a"] % 2 else {}))
    rows = made.take_all()
    assert [r["odd"] for r in rows] == [None, "w1", None]
    assert [r["t"].tolist() for r in rows] == [[0, 0], [1, 1], [2, 2]]
    assert made.schema().types[0] == "f32[2]"


def test_rows_become_many_or_none() -> None:
    words = data.from_items([{"text": t} for t in ("a b c", "", "d")])
    made = words.flat_map(lambda row: [{"word": w} for w in row["text"].split()])
    assert [r["word"] for r in made.take_all()] == ["a", "b", "c", "d"]
    assert made.limit(2).count() == 2
    with pytest.raises(TypeError, match="not a list of rows"):
        words.flat_map(lambda row: {"word": 1}).take()


def test_positions_lie_between_rows_made_of_one() -> None:
    made = numbers(9).flat_map(lambda row: [{"k": 10 * row["a"] + i} for i in range(row["a"] % 4)])
    for given in (made, made.random_shuffle(seed=3, window=4)):
        whole = [b["k"].tolist() for b in given.iter_batches(batch_size=2)]
        for steps in range(1, len(whole)):
            batches = given.iter_batches(batch_size=2)
            front = [next(batches)["k"].tolist() for _ in range(steps)]
            again = given.iter_batches(batch_size=2)
            again.load_state_dict(batches.state_dict())
            assert front + [b["k"].tolist() for b in again] == whole


# --- batches --------------------------------------------------------------------------------------


def test_batches_have_the_size_that_was_asked_for() -> None:
    sizes: list[int] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        sizes.append(len(batch["a"]))
        batch["a"] += 1  # what is given may be written to
        return batch

    made = numbers().map_batches(note, batch_size=4)
    assert [r["a"] for r in made.take_all()] == list(range(1, 11))
    assert sizes[-3:] == [4, 4, 2]
    assert [r["a"] for r in numbers(3).take_all()] == [0, 1, 2]


def test_a_batch_may_become_any_number_of_rows() -> None:
    total = numbers().map_batches(lambda b: {"sum": [int(b["a"].sum())]}, batch_size=5)
    assert total.take_all() == [{"sum": 10}, {"sum": 35}]

    def twice(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"a": batch["a"]}
        yield {"a": -batch["a"]}

    assert sorted(r["a"] for r in numbers(3).map_batches(twice).take_all()) == [-2, -1, 0, 0, 1, 2]


def test_classes_are_made_once() -> None:
    class Scale:
        made = 0

        def __init__(self, by: int) -> None:
            type(self).made += 1
            self.by = by

        def __call__(self, batch: dict[str, Any], plus: int) -> dict[str, Any]:
            return {"a": batch["a"] * self.by + plus}

    made = numbers(4).map_batches(Scale, batch_size=2, fn_constructor_args=(3,),
                                  fn_kwargs={"plus": 1}, concurrency=2)
    assert [r["a"] for r in made.take_all()] == [1, 4, 7, 10]
    assert Scale.made == 1


def test_columns_are_added() -> None:
    made = numbers(3).add_column("b", lambda batch: batch["a"] * 2, batch_format="numpy")
    assert made.take_all() == [{"a": i, "s": f"w{i}", "b": 2 * i} for i in range(3)]
    assert numbers(2).add_column("s", lambda batch: "same", batch_format="numpy").take_all() == [
        {"a": 0, "s": "same"}, {"a": 1, "s": "same"}]


@pytest.mark.parametrize("form", ["pandas", "pyarrow", "torch"])
def test_other_libraries_formats(form: str) -> None:
    pytest.importorskip(form)

    def double(batch: Any) -> Any:
        if form == "torch":
            return {"a": batch["a"] * 2}
        if form == "pandas":
            return batch.assign(a=batch["a"] * 2)
        import pyarrow.compute
        return batch.set_column(0, "a", pyarrow.compute.multiply(batch["a"], 2))

    if form == "torch":
        d = numbers(3).drop_columns("s").map_batches(double, batch_format=form)
        assert d.take_all() == [{"a": 2 * i} for i in range(3)]
        return
    assert numbers(3).map_batches(double, batch_format=form).take_all() == [
        {"a": 2 * i, "s": f"w{i}"} for i in range(3)]


def test_nulls_of_pandas_are_null() -> None:
    pandas = pytest.importorskip("pandas")

    def holes(frame: Any) -> Any:
        odd = frame["a"] % 2 == 1
        return frame.assign(s=frame["s"].where(~odd), kind=pandas.Categorical(frame["s"]),
                            n=frame["a"].astype("Int64").where(odd), yes=odd.astype("boolean"))

    wanted = [{"a": 0, "s": "w0", "kind": "w0", "n": None, "yes": False},
              {"a": 1, "s": None, "kind": "w1", "n": 1, "yes": True}]
    d = numbers(2).map_batches(holes, batch_format="pandas")
    assert d.take_all() == wanted
    assert numbers(2).map_batches(lambda f: (holes(p) for p in (f, f)),
                                  batch_format="pandas").take_all() == wanted + wanted
    assert numbers(2).add_column("s", lambda f: holes(f)["s"]).take_all()[1]["s"] is None


def test_a_generator_may_give_tables_or_rows() -> None:
    assert numbers(2).map_batches(lambda b: ([{"n": i}] for i in range(3))).take_all() == [
        {"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(TypeError, match="the function yields a int\nhint: "):
        numbers(2).map_batches(lambda b: iter([1])).take_all()
    pyarrow = pytest.importorskip("pyarrow")
    d = numbers(2).map_batches(lambda t: iter([t, pyarrow.table({"a": [7], "s": ["x"]})]),
                               batch_format="pyarrow")
    assert [r["a"] for r in d.take_all()] == [0, 1, 7]


# --- types ----------------------------------------------------------------------------------------


def test_types_are_those_of_the_first_rows_or_given() -> None:
    many = data.range(200)

    def late(row: dict[str, Any]) -> dict[str, Any]:
        return {"x": row["id"] if row["id"] < 150 else 0.5}

    with pytest.raises(TypeError, match='column "x" is f64 here, but i64'):
        many.map(late).take_all()
    assert many.map(late, types={"x": "f64"}).take_all()[-1] == {"x": 0.5}
    with pytest.raises(ValueError, match="there is no type 'float'"):
        many.map(late, types={"x": "float"}).take()




def test_integers_with_nulls_pass_through_arrays() -> None:
    """Which have NaN for null, in batches that have nulls, and integers in the others."""
    rows = [{"n": i, "small": i % 100} for i in range(600)] + [{"n": None, "small": None}]
    d = data.from_items(rows).map_batches(lambda b: b, batch_size=100)
    assert d.schema().types == ["i64", "i64"] and d.take_all() == rows
    half = data.from_items(rows).map_batches(lambda b: {"n": b["n"] / 2 if len(b["n"]) < 100 else
                                                        b["n"]}, batch_size=350)
    assert half.take_all()[0] == {"n": 0}
    with pytest.raises(TypeError, match='column "n" is f64 here.*\nhint: .*types = {"n": "f64"}'):
        data.from_items(rows).map_batches(
            lambda b: {"n": b["n"] if b["n"][0] == 0 else b["n"] / 2.1}, batch_size=350).take_all()


def test_times_are_columns() -> None:
    noon = datetime.datetime(2024, 5, 6, 12, 0, 1)
    rows = [{"t": noon, "d": noon.date(), "z": noon.replace(tzinfo=datetime.timezone.utc),
             "s": datetime.timedelta(seconds=3)}, dict.fromkeys("tdzs")]
    first, second = data.from_items(rows).map(lambda row: row).take_all()
    assert [str(first[k]) for k in "tdz"] == ["2024-05-06T12:00:01.000000", "2024-05-06",
                                              "2024-05-06T12:00:01.000000"]
    assert first["s"] == numpy.timedelta64(3, "s") and set(second.values()) == {None}
    stamp = numpy.datetime64("2024-05-06T12:00:01.000000007")
    assert data.from_items([{"t": stamp}]).map(lambda r: r).take_all() == [{"t": stamp}]
    with pytest.raises(TypeError, match="times and spans do not make one column"):
        data.from_items([noon, datetime.timedelta(1)])


# --- failures -------------------------------------------------------------------------------------


class Odd(Exception):
    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row


def test_exceptions_arrive_as_themselves() -> None:
    def picky(row: dict[str, Any]) -> bool:
        if row["a"] == 7:
            raise Odd(row["a"], "seven")
        return True

    for _ in range(2):
        with pytest.raises(Odd, match="seven") as caught:
            list(numbers().filter(picky).iter_batches(batch_size=2))
        assert caught.value.row == 7
        assert "picky" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    batches = numbers().filter(picky).iter_batches(batch_size=2)
    for _ in range(2):  # again and again
        with pytest.raises(Odd):
            list(batches)


WRONG: list[tuple[Any, str]] = [
    (lambda d: d.map(lambda r: None), r"gives None\nhint: it has to return the row"),
    (lambda d: d.map(lambda r: {"x": 1} if r["a"] else None), r"gives None\nhint: "),
    (lambda d: d.map(lambda r: {"x": 1} if r["a"] else 3), r"a dict for some rows, and a int for"),
    (lambda d: d.map(lambda r: {"x": [1] * r["a"]}), r"'x': values of list.*\nhint: .*padded"),
    (lambda d: d.map(lambda r: {"x": {"k": 1}}), r"values of dict do not.*\nhint: .*json\.dumps"),
    (lambda d: d.map(lambda r: {"x": [[1], [1, 2]]}), r"column 'x': values of list.*\nhint: "),
    (lambda d: d.map_batches(lambda b: {"a": b["a"], "k": 1}), r"column 'k' is a int, not an arra"),
]


@pytest.mark.parametrize("make, said", WRONG, ids=range(len(WRONG)))
def test_wrong_rows_are_said_with_the_function(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=r"(map|map_batches)\(.*lambda>\): .*" + said):
        make(numbers(3)).take_all()


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(TypeError, match="a function is wanted"):
        numbers().map("a")
    with pytest.raises(TypeError, match="no argument 'batchsize'"):
        numbers().map_batches(lambda b: b, batchsize=3)
    with pytest.raises(ValueError, match="batch_size=0"):
        numbers().map_batches(lambda b: b, batch_size=0)
    with pytest.raises(ValueError, match="batch_format='xml'"):
        numbers().map_batches(lambda b: b, batch_format="xml")
    with pytest.raises(TypeError, match="gives a int"):
        numbers().map_batches(lambda b: 3).take()
    with pytest.raises(ValueError, match="different lengths"):
        numbers().map_batches(lambda b: {"a": [1], "b": [1, 2]}).take()


def test_nothing_is_called_before_rows_are_wanted() -> None:
    calls: list[int] = []
    made = numbers().map(lambda row: calls.append(row["a"]) or row).filter(col("a") > 1)
    made = made.random_shuffle(seed=1).limit(3)
    assert not calls
    assert made.count() == 3
    assert calls


# --- other processes and threads ------------------------------------------------------------------


def test_functions_travel_with_the_data_set() -> None:
    import cloudpickle
    least = 4
    made = numbers().filter(lambda row: row["a"] >= least).map(lambda row: {"b": row["a"] * FACTOR})
    again = pickle.loads(cloudpickle.dumps(made))
    assert again.take_all() == made.take_all() == [{"b": 10 * i} for i in range(4, 10)]


def test_threads_that_read_call_at_once(tmp_path: Any) -> None:
    for k in range(6):
        (tmp_path / f"{k}.csv").write_text("a\n" + "\n".join(str(100 * k + i) for i in range(50)))
    seen: set[int] = set()

    def note(row: dict[str, Any]) -> bool:
        seen.add(threading.get_ident())
        return row["a"] % 2 == 0

    made = data.read_csv(tmp_path).filter(note)
    rows = [a for b in made.iter_batches(batch_size=7, threads=3) for a in b["a"].tolist()]
    assert rows == [100 * k + i for k in range(6) for i in range(0, 50, 2)]
    assert threading.get_ident() not in seen


def test_a_function_may_go_deep() -> None:
    """It runs in threads of C, which have room for what Python's own threads can do."""
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + max(map(depth, [n - 1]))  # through C

    assert data.range(3).map(lambda row: {"n": depth(300)}).take_all() == [{"n": 300}] * 3

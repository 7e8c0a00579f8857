# SPDX-License-Identifier: Apache-2.0
"""Steps, parts and iteration: what a data set gives, where it travels, and what it imports."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import manta
from manta import data
from manta.data import Dataset, col, from_items, read_csv


def numbers(n: int) -> Dataset:
    return data.range(n)


def ids(d: Dataset) -> list[int]:
    return [r["id"] for r in d.take_all()]


@pytest.fixture
def people(tmp_path: Path) -> Dataset:
    text = "name,age,score\n" + "".join(f"n{i},{i % 50},{i / 7!r}\n" for i in range(500))
    (tmp_path / "people.csv").write_text(text)
    return read_csv(tmp_path / "people.csv")


# --- steps ----------------------------------------------------------------------------------------


def test_rows_are_filtered_and_columns_computed(people: Dataset) -> None:
    d = people.filter(col("age") > 40).add_column("twice", col("age") * 2).drop_columns("score")
    assert d.columns() == ["name", "age", "twice"]
    assert d.take(2) == [{"name": "n41", "age": 41, "twice": 82},
                         {"name": "n42", "age": 42, "twice": 84}]
    assert d.count() == len(d.take_all()) == 90
    assert people.filter() is people


def test_map_sees_the_row_as_it_was(people: Dataset) -> None:
    assert people.map({"age": col("score"), "score": col("age"), "one": 1}).take(1) == [
        {"age": 0.0, "score": 0, "one": 1}]
    assert people.map((col("age") + 1).alias("next")).columns() == ["next"]


def test_columns_have_other_names(people: Dataset) -> None:
    assert people.rename_columns({"age": "years"}).columns() == ["name", "years", "score"]
    assert people.rename_columns(["a", "b", "c"]).columns() == ["a", "b", "c"]
    assert people.select_columns(["score", "name"]).columns() == ["score", "name"]
    with pytest.raises(ValueError, match="2 names for 3 columns"):
        people.rename_columns(["a", "b"])


def test_a_column_that_is_not_there_is_named(people: Dataset) -> None:
    for wrong in (lambda: people.filter(col("agee") > 1), lambda: people.select_columns("agee"),
                  lambda: people.to_cv(groups="agee")):
        with pytest.raises(KeyError, match='^there is no column "agee"\nhint: the nearest') as e:
            wrong()
        assert isinstance(e.value, manta.NoColumn)
    with pytest.raises(TypeError):
        people.filter(col("name") > 1)


def test_limits_unions_zips_samples() -> None:
    d = numbers(100)
    assert ids(d.limit(3)) == [0, 1, 2]
    assert ids(d.limit(2).union(d.limit(3), d.limit(1))) == [0, 1, 0, 1, 2, 0]
    assert d.limit(2).zip(d.limit(2).map({"id": col("id") * 2})).take_all() == [
        {"id": 0, "id_1": 0}, {"id": 1, "id_1": 2}]
    some = ids(d.random_sample(0.3, seed=5))
    assert 10 < len(some) < 60 and some == ids(d.random_sample(0.3, seed=5))
    assert ids(d.limit(3).repeat(2)) == [0, 1, 2, 0, 1, 2]


def test_shuffles_are_a_function_of_the_seed() -> None:
    d = numbers(1000)
    once = ids(d.random_shuffle(seed=4))
    assert sorted(once) == list(range(1000)) and once != sorted(once)
    assert once == ids(d.random_shuffle(seed=4)) != ids(d.random_shuffle(seed=5))
    near = ids(d.random_shuffle(seed=4, window=10))
    assert all(sorted(near[i:i + 10]) == list(range(i, i + 10)) for i in range(0, 1000, 10))
    assert sorted(ids(d.random_shuffle(seed=4).filter(col("id") < 5))) == [0, 1, 2, 3, 4]
    assert len(ids(d.random_shuffle().limit(7))) == 7


def test_a_data_set_in_memory_is_read_once(people: Dataset, tmp_path: Path) -> None:
    held = people.filter(col("age") == 3).materialize()
    (tmp_path / "people.csv").unlink()
    assert len(held.take_all()) == 10 and len(held.random_shuffle().take_all()) == 10


def test_the_plan_is_printed(people: Dataset) -> None:
    d = people.filter(col("age") > 3).select_columns(["age"]).random_shuffle(seed=1)
    said = d.pipeline(length=7).shard(0, 2).explain()
    assert said.startswith("window of 7 blocks\nshard 0 of 2\nshuffle")
    assert "1 of 3 columns: age; filter age > 3" in said


# --- parts ----------------------------------------------------------------------------------------


def test_parts_have_each_row_once() -> None:
    d = numbers(103)
    for whole in (d, d.random_shuffle(seed=2)):
        parts = whole.split(4)
        assert sorted(i for p in parts for i in ids(p)) == list(range(103))
        assert [p.count() for p in parts] == [25, 26, 26, 26]
    assert [p.count() for p in d.split(4, equal=True)] == [25] * 4
    assert [ids(p)[:1] for p in d.split_at_indices([3, 50])] == [[0], [3], [50]]
    assert [p.count() for p in numbers(100).split_proportionately([0.2, 0.5])] == [20, 50, 30]


@pytest.mark.parametrize("shuffle", (False, True))
def test_train_and_test_have_each_row_once(shuffle: bool) -> None:
    for size, wanted in ((0.3, 30), (7, 7)):
        train, test = numbers(100).train_test_split(size, shuffle=shuffle, seed=3)
        assert test.count() == wanted
        assert sorted(ids(train) + ids(test)) == list(range(100))
        assert (ids(test) == list(range(100 - wanted, 100))) is not shuffle


def test_parts_of_a_shuffled_data_set_are_chosen_by_chance() -> None:
    """Files are often sorted by class: the last rows would be of one."""
    d = numbers(100).random_shuffle(seed=3)
    for size in (0.3, 30):
        train, test = d.train_test_split(size)
        assert sorted(ids(train) + ids(test)) == list(range(100)) and len(ids(test)) == 30
        assert sorted(ids(test)) != list(range(70, 100))
        assert sorted(ids(test)) == sorted(ids(d.train_test_split(size)[1]))
    folds = [sorted(ids(validation)) for _, validation in d.to_cv(splits=2)]
    assert sorted(folds[0] + folds[1]) == list(range(100)) and folds[0] != list(range(50))
    series = [sorted(ids(validation)) for _, validation in d.to_cv(splits=2, time_series=True)]
    assert max(series[0]) < min(series[1])


@pytest.mark.parametrize("how", ({}, {"shuffle": True, "seed": 3}, {"stratify": "y"},
                                 {"groups": "g"}))
def test_each_row_validates_once(how: dict[str, Any]) -> None:
    d = from_items([{"i": i, "y": i % 2, "g": i // 6} for i in range(60)])
    for whole in (d, d.pipeline(length=4), d.random_shuffle(seed=1)):
        pairs = whole.to_cv(splits=5, **how)
        assert isinstance(pairs, tuple) and len(pairs) == 5
        assert sorted(r["i"] for _, v in pairs for r in v.take_all()) == list(range(60))
        for train, validation in pairs:
            rows = validation.take_all()
            assert len(rows) == 12 and train.count() == 48
            assert not {r["i"] for r in rows} & {r["i"] for r in train.take_all()}
            if "stratify" in how:
                assert sum(r["y"] for r in rows) == 6
            if "groups" in how:
                assert not {r["g"] for r in rows} & {r["g"] for r in train.take_all()}


def test_a_series_is_validated_by_what_follows() -> None:
    for train, validation in numbers(60).to_cv(5, time_series=True):
        assert max(ids(train)) < min(ids(validation))
    assert len(numbers(60).to_cv()) == 3
    with pytest.raises(ValueError, match="2 or more"):
        numbers(60).to_cv(1)


def test_shards_are_parts_of_global_batches() -> None:
    d = numbers(50).random_shuffle(seed=9)
    batches = [[list(b["id"]) for b in d.shard(r, 3).iter_batches(batch_size=5)] for r in range(3)]
    assert len({len(b) for b in batches}) == 1
    whole = [i for step in zip(*batches) for part in step for i in part]
    assert whole == ids(d)
    assert [d.shard(r, 3).count() for r in range(3)] == [sum(map(len, b)) for b in batches]
    assert d.get_split().count() == 50 and d.get_shard(0).count() == 50
    equal = d.streaming_split(3, equal=True)
    assert [sum(len(b["id"]) for b in s.iter_batches(batch_size=5)) for s in equal] == [15] * 3
    with pytest.raises(ValueError, match="the rank is 0 to 2"):
        d.shard(3, 3)


def test_an_empty_part_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="this one's part is empty\nhint: tail="):
        assert len(list(numbers(9).shard(0, 8).iter_batches(batch_size=1))[1]["id"]) == 0


# --- iteration ------------------------------------------------------------------------------------


def test_each_for_is_an_epoch() -> None:
    it = numbers(30).random_shuffle(seed=1).iter_batches(batch_size=8, batch_format="dict")
    first, second = [[i for b in it for i in b["id"]] for _ in range(2)]
    assert sorted(first) == sorted(second) == list(range(30)) and first != second
    it.set_epoch(0)
    assert [i for b in it for i in b["id"]] == first
    for b in it:
        break
    assert len([b for b in it]) == 4  # not what was left


def test_next_goes_on() -> None:
    it = numbers(10).iter_batches(batch_size=4, batch_format="dict")
    assert next(it) == {"id": [0, 1, 2, 3]}
    assert [b["id"] for b in it] == [[4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("at", (0, 1, 3, 7))
def test_a_position_holds_for_other_sizes(at: int) -> None:
    d = numbers(100).random_shuffle(seed=6, window=16).filter(col("id") % 3 != 0)
    it = d.iter_batches(batch_size=8, batch_format="dict")
    seen = [i for _ in range(at) for i in next(it)["id"]]
    state = pickle.loads(pickle.dumps(it.state_dict()))
    assert all(type(v) is int for v in state.values())
    other = d.iter_batches(batch_size=5, batch_format="dict")
    other.load_state_dict(state)
    assert seen + [i for b in other for i in b["id"]] == ids(d)
    with pytest.raises(ValueError, match="is a position in other data"):
        numbers(100_000).iter_batches().load_state_dict(state)


def test_a_position_at_the_end_is_the_next_epoch() -> None:
    d = numbers(20).random_shuffle(seed=6)
    it = d.iter_batches(batch_size=8, batch_format="dict")
    list(it)
    other = d.iter_batches(batch_size=8, batch_format="dict")
    other.load_state_dict(it.state_dict())
    assert other.epoch == 1 and list(other) == list(it)


def test_tails() -> None:
    def sizes(**how: Any) -> list[int]:
        return [len(b["id"]) for b in numbers(10).iter_batches(batch_size=4, **how)]
    assert sizes() == sizes(tail="short") == [4, 4, 2]
    assert sizes(drop_last=True) == sizes(tail="drop") == [4, 4]
    assert sizes(tail="pad") == [4, 4, 4]
    with pytest.raises(ValueError, match='tail=\'none\': it is "short"'):
        sizes(tail="none")


def test_stats_say_where_the_time_went(people: Dataset) -> None:
    d = people.filter(col("age") >= 0)
    it = d.iter_batches(batch_size=100)
    assert len(list(it)) == 5
    s = d.stats()
    assert (s["rows"], s["batches"], s["skipped"]) == (500, 5, 0) and s["parse"] > 0
    assert s["read"] > 0 and "of these in reads of files" in str(s)
    it.close()
    assert d.stats()["batches"] == 5 and "rows 500, batches 5" in str(d.stats())


def test_two_threads_cannot_share_an_iterator() -> None:
    import threading
    it = numbers(2_000_000).iter_batches(batch_size=1000)
    errors: list[BaseException] = []

    def go() -> None:
        try:
            for _ in range(500):
                next(it)
        except ValueError as e:
            errors.append(e)
    threads = [threading.Thread(target=go) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(50)
    assert all("another thread is using this iterator" in str(e) for e in errors)


# --- travel ---------------------------------------------------------------------------------------


def test_a_data_set_travels(people: Dataset, tmp_path: Path) -> None:
    train, _ = people.filter(col("age") < 9).random_shuffle(seed=3).train_test_split(0.5)
    sent = pickle.dumps({"csv": train.shard(1, 2), "items": from_items([{"a": 1, "s": "é"}]),
                         "numbers": numbers(3)})
    code = (f"import pickle, sys, json; d = pickle.loads({sent!r})\n"
            "print(json.dumps({k: [v.take_all(), v.rank] for k, v in d.items()}))\n"
            "assert not {'numpy', 'torch', 'pyarrow'} & set(sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50,
                          cwd="/")
    assert done.returncode == 0, done.stderr
    import json
    assert json.loads(done.stdout) == {
        "csv": [train.shard(1, 2).take_all(), 1], "items": [[{"a": 1, "s": "é"}], 0],
        "numbers": [[{"id": 0}, {"id": 1}, {"id": 2}], 0]}


def test_a_plain_script_imports_only_what_it_uses(tmp_path: Path) -> None:
    """And may end in the middle of an iteration."""
    code = ("import sys, manta; assert 'manta.data' not in sys.modules\n"
            "d = manta.data.range(10**7); it = d.iter_batches(batch_format='dict'); next(it)\n"
            "print(sorted({'numpy', 'torch', 'pandas', 'pyarrow'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_what_is_printed() -> None:
    d = from_items([{"a": 1, "t": "x"}])
    assert repr(d) == "Dataset(a: i64, t: string)"
    assert repr(d.schema()) == "a: i64\nt: string"
    assert d.schema().names == ["a", "t"] and d.schema().types == ["i64", "string"]


# --- programs of other systems --------------------------------------------------------------------


def test_names_that_are_not_here_say_what_is(people: Dataset, tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"Dataset\.groupby is not in this version .*\nhint: "):
        people.groupby
    with pytest.raises(AttributeError, match="Dataset has no 'iter_batch'\nhint: .*iter_batches"):
        people.iter_batch
    with pytest.raises(TypeError, match=r"read_csv\(\) has no argument 'seperator'\nhint: .*sep"):
        read_csv(tmp_path / "people.csv", seperator=";")  # type: ignore[call-arg]
    assert not hasattr(people, "sort") and not hasattr(people, "__array__")
    with pytest.raises(AttributeError, match=r"Dataset\.num_rows .*\nhint: count\(\)"):
        people.num_rows
    with pytest.raises(AttributeError, match=r"manta\.data\.read_images .*\nhint: read_binary_f"):
        data.read_images
    with pytest.raises(TypeError, match=r"read_csv\(\) has no argument 'sep'\nhint: it is separat"):
        read_csv(tmp_path / "people.csv", sep=";")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"iter_batches\(\) has no .*'batchsize'\nhint: .*batch_"):
        people.iter_batches(batchsize=3)  # type: ignore[call-arg]


def test_what_is_said_of_placement_changes_nothing(tmp_path: Path, people: Dataset) -> None:
    d = read_csv(tmp_path / "people.csv", parallelism=200,  # type: ignore[call-arg]
                 filesystem=None)
    d = d.repartition(8).random_shuffle(seed=1, num_blocks=3)
    assert d.count() == 500 and len(d.streaming_split(2, locality_hints=[1, 2])) == 2
    assert len(list(d.repartition(2, shuffle=True).iter_batches(100, "dict"))) == 5
    assert from_items([1, 2], override_num_blocks=2).count() == 2  # type: ignore[call-arg]
    context = data.DataContext.get_current()
    context.execution_options.verbose_progress = False
    assert context is data.DataContext.get_current()
    options = manta.train.DataConfig.default_ingest_options()
    options.resource_limits = options.resource_limits.copy(object_store_memory=10e9)
    assert options.copy().resource_limits.object_store_memory == 10e9
    assert manta.train.DataConfig(execution_options=options).splits("train")
    assert data.Datastream is data.DataIterator is Dataset
    pool = data.ActorPoolStrategy(size=2)
    assert d.map_batches(lambda b: b, compute=pool).count() == 500
    assert len(list(d.iter_batches(100, "dict", prefetch_blocks=3))) == 5
    d.limit(3).write_csv(tmp_path / "few.csv", concurrency=2)  # type: ignore[call-arg]
    assert read_csv(tmp_path / "few.csv").count() == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'sep'"):
        d.write_csv(tmp_path / "no.csv", sep=";")  # type: ignore[call-arg]

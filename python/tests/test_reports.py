# SPDX-License-Identifier: Apache-2.0
"""Reports: what reaches callbacks, and the rows of a run one by one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import sgd
from manta.sgd import SGDCallback, Trainer


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """Two workers without a framework."""
    trainer = Trainer(backend=None, num_workers=2, logdir=tmp_path_factory.mktemp("runs"))
    yield trainer
    trainer.shutdown()


# --- callbacks ------------------------------------------------------------------------------------


class Keep(SGDCallback):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.told: list[Any] = []

    def start_training(self, logdir: str, config: dict[str, Any]) -> None:
        self.told.append(("start", Path(logdir).is_dir(), config))

    def handle_result(self, results: list[Any], **info: Any) -> None:
        self.rows.append((results, info))

    def finish_training(self, error: bool) -> None:
        self.told.append(("finish", error))


def test_reports_reach_callbacks_with_their_keys(two: Trainer) -> None:
    def train() -> None:
        for epoch in range(3):
            sgd.report(epoch=epoch, rank=sgd.world_rank())

    keep = Keep()
    two.run(train, callbacks=[keep], config={"a": 1})
    assert keep.told == [("start", True, {"a": 1}), ("finish", False)]
    assert [[r["rank"] for r in rows] for rows, _ in keep.rows] == [[0, 1]] * 3
    assert [rows[0]["epoch"] for rows, _ in keep.rows] == [0, 1, 2]
    row = keep.rows[2][0][1]
    assert list(row) == ["epoch", "rank", "_timestamp", "_time_this_iter_s", "_training_iteration"]
    assert isinstance(row["_timestamp"], int) and isinstance(row["_time_this_iter_s"], float)
    assert row["_training_iteration"] == 3
    assert keep.rows[2][1] == {"iteration": 3, "complete": True}


def test_reported_values_of_all_kinds(two: Trainer) -> None:
    class Scalar:  # as numpy and torch have them
        dtype = "float32"

        def item(self) -> float:
            return 2.5

    keep = Keep()
    two.run(lambda: sgd.report(a=(1, 2), b={"c": [None, True]}, d=Scalar(), e={3}, f=2**70),
            callbacks=[keep])
    row = keep.rows[0][0][0]
    assert (row["a"], row["b"], row["d"], row["e"], row["f"]) == (
        [1, 2], {"c": [None, True]}, 2.5, {3}, 2**70)


def test_a_callback_that_fails_does_not_stop_the_run(two: Trainer,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    class Bad(SGDCallback):
        def handle_result(self, results: list[Any]) -> None:
            raise KeyError("mine")

    keep = Keep()
    assert two.run(lambda: sgd.report(x=1), callbacks=[Bad(), keep]) == [None, None]
    assert len(keep.rows) == 1
    assert "Bad.handle_result failed" in capsys.readouterr().err
    Bad.raise_errors = True
    with pytest.raises(KeyError, match="mine"):
        two.run(lambda: sgd.report(x=1), callbacks=[Bad()])


def test_callbacks_of_the_trainer_come_first(tmp_path: Path) -> None:
    calls = []

    class Note(SGDCallback):
        def __init__(self, name: str):
            self.name = name

        def handle_result(self, results: list[Any]) -> None:
            calls.append(self.name)

    with Trainer(backend=None, callbacks=[Note("trainer")], logdir=tmp_path) as t:
        t.run(lambda: sgd.report(x=1), callbacks=[Note("run")])
    assert calls == ["trainer", "run"]


def test_uneven_reports_are_an_error(two: Trainer) -> None:
    def train() -> None:
        for _ in range(2 + sgd.world_rank()):
            sgd.report(x=1)

    with pytest.raises(RuntimeError, match="rank"):
        two.run(train)


def test_a_report_that_is_too_large_points_to_checkpoints(two: Trainer) -> None:
    with pytest.raises(ValueError, match="checkpoint"):
        two.run(lambda: sgd.report(x="a" * (2 << 20)))


def test_report_takes_names_only(two: Trainer) -> None:
    with pytest.raises(TypeError):
        two.run(lambda: sgd.report({"loss": 1}))  # type: ignore[call-arg]


# --- row by row -----------------------------------------------------------------------------------


def _count(n: int = 3) -> int:
    for i in range(n):
        sgd.report(i=i)
    return n


def test_a_generator_gives_the_rows_of_every_iteration(two: Trainer) -> None:
    generator = two.run_generator(lambda: _count())
    assert generator.get_returns() is None
    seen = []
    for item in generator:
        assert len(item) == 2 and item[1]["i"] == item["i"]
        seen.append({**item}["i"])
    assert seen == [0, 1, 2]
    assert generator.is_finished()
    assert generator.get_returns() == [3, 3]


def test_final_results_can_be_forced(two: Trainer) -> None:
    generator = two.run_iterator(lambda: _count())
    next(generator)
    assert generator.get_final_results() is None
    assert generator.get_final_results(force=True) == [3, 3]


def test_leaving_the_loop_ends_the_run(two: Trainer) -> None:
    def train() -> None:
        for i in range(10**9):
            sgd.report(i=i)
            time.sleep(0.001)

    for item in two.run_generator(train):
        if item["i"] == 2:
            break
    assert two.run(lambda: 1) == [1, 1]  # it is free again


def test_an_error_comes_out_of_the_loop(two: Trainer) -> None:
    def train() -> None:
        sgd.report(x=1)
        raise KeyError("inside")

    generator = two.run_generator(train)
    with pytest.raises(KeyError, match="inside"):
        list(generator)
    assert generator.is_finished() and generator.get_returns() is None


def test_one_run_at_a_time(two: Trainer) -> None:
    generator = two.run_generator(lambda: _count())
    with pytest.raises(RuntimeError, match="a run already"):
        two.run(lambda: 1)
    generator.close()
    assert two.run(lambda: 1) == [1, 1]

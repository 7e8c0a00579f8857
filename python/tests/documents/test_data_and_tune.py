# SPDX-License-Identifier: Apache-2.0
"""The programs with datasets and with tuning do what the documents say of them. Those that wait are
in programs.WAITS."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from programs import HERE, program, program_as_ray

pytest.importorskip("torch", reason="torch is not installed")


def test_000_dataset() -> None:
    """All rows that the filter leaves, each in one of eight shards."""
    results = program("d000_dataset")["result"]
    models, rows, largest = zip(*results)
    assert len(models) == 8 and sum(rows) == 1000 and min(rows) > 0
    assert max(largest) == 64


def test_000_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tmp_path.as_uri())
    assert program("d000_mlflow")["result"] == [None, None]
    logged = [line.split() for p in tmp_path.rglob("metrics/loss") for line in open(p)]
    assert len(logged) == 2


def test_001_dataset() -> None:
    left = program("d001_dataset")
    assert len(left["split"]) == 8
    assert sorted(y for rank in left["split"] for ys in rank for y in ys) == list(range(0, 64, 2))
    assert all(len(ys) <= 2 for rank in left["split"] for ys in rank)
    assert left["whole"] == list(range(16))


def test_001_cross_validation() -> None:
    results = program("d001_cross_validation")["results"]
    assert len(results) == 10
    for train, validation in zip(results[::2], results[1::2]):
        assert len(validation) == 4 and sorted(train + validation) == list(range(20))
    assert sorted(sum(results[1::2], [])) == list(range(20))


def test_001_cv_in_worker() -> None:
    left = program("d001_cv_in_worker")
    assert left["results"] == ["a model", "a model"]
    rows = [row["cv"] for row in left["Collect"].seen]
    assert rows == [0] * 4 + [1] * 4 + [2] * 4


def test_001_tune() -> None:
    analysis = program("d001_tune")["analysis"]
    assert len(analysis.trials) == 12
    for trial in analysis.trials:
        config, last = trial.config, trial.last_result
        assert 0 <= config["lr"] <= 1 and last["loss"] == config["lr"]
        assert config["batch_size"] in (1, 2, 3)
        assert last["batches"] == -(-6 // config["batch_size"])


def test_001_tune_trainer() -> None:
    analysis = program("d001_tune_trainer")["analysis"]
    assert [t.last_result["total"] for t in analysis.trials] == [2.0, 4.0]


def test_002_tune_v1() -> None:
    analysis = program("d002_tune_v1")["analysis"]
    assert [t.config["input"] for t in analysis.trials] == [1, 2, 3]
    assert all(t.last_result["train_loss"] >= 0 for t in analysis.trials)


def test_002_tune_v2(capsys: pytest.CaptureFixture[str]) -> None:
    program("d002_tune_v2")
    assert ast.literal_eval(capsys.readouterr().out.splitlines()[-1]) == {"num_epochs": 2,
                                                                          "input": 3}


def test_003_tune() -> None:
    analysis = program("d003_tune")["analysis"]
    assert len(analysis.trials) == 2
    assert all(t.last_result["training_iteration"] == 2 for t in analysis.trials)


def test_003_train(tmp_path: Path) -> None:
    """`python train.py --address="auto"`"""
    assert program_as_ray("d003_train", tmp_path, "--address=auto") == "[0, 1]\n"


def test_a_program_that_waits_is_a_program() -> None:
    for path in HERE.glob("d0*.py"):
        compile(path.read_text(), path.name, "exec")

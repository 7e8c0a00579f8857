# SPDX-License-Identifier: Apache-2.0
"""The programs of this directory do what the documents say of them; README.md lists them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import program, program_apart

# Before a program imports it: torch keeps the __main__ of that moment, and with it the trainer.
pytest.importorskip("torch", reason="torch is not installed")

STAMPS = ["_timestamp", "_time_this_iter_s", "_training_iteration"]


# --- document 000 ---------------------------------------------------------------------------------


def test_000_quick_start(capsys: pytest.CaptureFixture[str]) -> None:
    left = program("d000_quick_start")
    assert [tuple(r.shape) for r in left["results"]] == [(4, 1), (4, 1)]
    assert capsys.readouterr().out == f"{left['results']}\n"


def test_000_ddp() -> None:
    """Each rank has random data of its own; their mean loss falls."""
    results = program("d000_ddp")["all_results"]
    assert [len(r) for r in results] == [10, 10]
    assert results[0] != results[1]
    means = [sum(r) for r in zip(*results)]
    assert means == sorted(means, reverse=True), means


# --- document 001 ---------------------------------------------------------------------------------


def test_001_training() -> None:
    out = program_apart("d001_training", "print(float(model.weight.detach()), len(result))")
    table, weight, losses = re.fullmatch(r"(.*used: [^\n]*)\n(\S+) (\d+)\n", out, re.S).groups()
    rows = re.findall(r"^. +(\d+) . \S+ +. +\S+ . 2 +. 2 ", table, re.M)
    assert rows == [str(rank) for rank in range(8)], table
    assert re.search(r"^used: CPUs \d+/16\b.*\bGPUs \d+/16\b", table, re.M), table
    assert 1 < float(weight) < 3.1 and int(losses) == 5 * 32 // 8


def test_001_in_worker() -> None:
    left = program("d001_in_worker")
    assert left["split"] == [[[rank, rank + 8]] for rank in range(8)]
    assert left["whole"] == [[i, i + 1] for i in range(0, 16, 2)]


def test_001_reporting() -> None:
    left = program("d001_reporting")
    rows = left["Collect"].seen
    assert left["results"] == ["a model", "a model"] and len(rows) == 3
    for results in rows:
        assert [{k: r[k] for k in ("loss", "accuracy")} for r in results] == \
            [{"loss": 0.5, "accuracy": 0.75}] * 2
    assert left["stuff"] == [0.75] * 3
    assert left["model"] == ["a model", "a model"]


def test_001_elastic() -> None:
    left = program("d001_elastic")
    assert len(left["results"]) >= 4
    model, optimizer, epoch = left["state"]
    assert epoch == 3
    assert model.weight.tolist() == left["results"][0].weight.tolist()
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.1


def test_001_accelerate() -> None:
    models, losses = zip(*program("d001_accelerate")["results"])
    weights = [[p.tolist() for p in m.parameters()] for m in models]
    assert weights[0] == weights[1]
    assert len(losses[0]) == 30 and losses[0][-1] < losses[0][2]


def test_001_class_api() -> None:
    out = program_apart("d001_class_api", "print(everywhere, once)")
    assert out == f"{[105] * 12} 110\n"


def test_001_worker_group() -> None:
    assert program("d001_worker_group")["loss"] == [2]


# --- document 002 ---------------------------------------------------------------------------------


def test_002_distributed(capsys: pytest.CaptureFixture[str]) -> None:
    left = program("d002_distributed")
    said = re.findall(r"^\(rank 0\) epoch: (\d), loss: (\S+)$", capsys.readouterr().out, re.M)
    assert [epoch for epoch, _ in said] == ["0", "1", "2"]
    assert float(said[2][1]) < float(said[0][1])
    assert left["results"] == [None] * 4


def test_002_return_values() -> None:
    left = program("d002_return_values")
    assert len(left["results"]) == 2
    assert left["trained_model"].weight == 6


def test_002_reporting(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines 280-282: the printed rows, with these keys in this order."""
    left = program("d002_reporting")
    rows = [eval(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(r) for r in rows] == [2, 2, 2]
    for epoch, results in enumerate(rows):
        for row in results:
            assert list(row) == ["epoch", *STAMPS]
            assert row["epoch"] == epoch and row["_training_iteration"] == epoch + 1
            assert [type(row[k]) for k in STAMPS] == [int, float, int]
    assert left["result"] == [None, None]


def test_002_checkpointing() -> None:
    left = program("d002_checkpointing")
    state = left["trainer"].get_last_checkpoint()
    assert state["epoch"] == 2
    assert state["model"]["weight"].item() == 2.0
    assert sorted(state) == ["_timestamp", "epoch", "model"]


def test_002_operator() -> None:
    left = program("d002_operator")
    assert left["losses"] == sorted(left["losses"], reverse=True) and len(left["losses"]) == 10
    assert left["final_model"].weight.item() == pytest.approx(2, abs=0.05)


def test_002_operator_in_a_train_function() -> None:
    left = program("d002_operator_v2")
    assert left["final_model"][0].weight.item() == pytest.approx(2, abs=0.05)
    assert left["results"][1:] == [None, None, None]


def test_002_v1(capsys: pytest.CaptureFixture[str]) -> None:
    left = program("d002_v1")
    assert left["trained_model"].weight.shape == (1, 1)
    rows = [eval(line) for line in capsys.readouterr().out.splitlines()]
    assert [[r["epoch"] for r in row] for row in rows] == [[2, 2], [3, 3], [4, 4]]
    assert [r["num_samples"] for r in rows[0]] == [4, 4]
    saved = Path(os.environ["MANTA_RESULTS"], "ray_results")
    assert sorted(p.name for p in saved.iterdir()) == [f"checkpoint_00000{n}.pt" for n in (5, 6, 7)]


def test_002_v1_tuning() -> None:
    left = program("d002_v1_tuning")
    assert left["outputs"] == [2, 4, 6]  # of each worker's two samples
    assert issubclass(left["TorchTrainable"], left["TorchTrainer"].as_trainable().__base__)


# --- document 003 ---------------------------------------------------------------------------------


def test_003_fault_tolerance() -> None:
    """Two workers were killed, and every pass of four batches counts once."""
    left = program("d003_fault_tolerance")
    assert left["killed"] == [5, 13]
    assert left["trainer"].max_replicas == 2 and left["steps"] == [16, 16]
    assert left["losses"] == sorted(left["losses"], reverse=True)
    assert left["saved"]["epoch"] == 3  # before the fourth pass


def test_003_tuning() -> None:
    left = program("d003_tuning")
    assert left["best"] == 1e-1 and len(left["found"]) == 2


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["util.sgd", "util.sgd.v2", "experimental.sgd"])
def test_older_paths_lead_to_the_same_names(path: str) -> None:
    code = (f"import manta, sys; from manta.{path} import Trainer; "
            f"from manta.{path}.callbacks import SGDCallback; from manta import sgd; "
            f"assert Trainer is sgd.Trainer is manta.{path}.Trainer; "
            f"assert SGDCallback is sgd.SGDCallback and 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)

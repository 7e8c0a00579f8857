# SPDX-License-Identifier: Apache-2.0
"""The programs of document 004 do what it says of them."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from programs import program, program_as_ray

torch = pytest.importorskip("torch", reason="torch is not installed")


def test_quick_start(capsys: pytest.CaptureFixture[str]) -> None:
    """The model learns alone and on four workers, each with a quarter of the batches."""
    left = program("d004_quick_start")
    out = capsys.readouterr().out
    alone = re.findall(r"^epoch: (\d), loss: (\S+)$", out, re.M)
    together = re.findall(r"^\(rank 0\) epoch: (\d), loss: (\S+)$", out, re.M)
    for said in (alone, together):
        assert [epoch for epoch, _ in said] == ["0", "1", "2"]
        assert float(said[2][1]) < float(said[0][1])
    metrics = left["results"].metrics
    assert metrics["loss"] == float(together[-1][1]) and metrics["batches"] == 256 // 16 // 4
    assert metrics["wrapped"] == "DistributedDataParallel"
    assert "Sampler" in metrics["sampler"] and metrics["sampler"] != "RandomSampler"


def test_prepare() -> None:
    """What the diffs take out and what they put in compute the same."""
    left = program("d004_prepare")
    before, after, customized = (left[k].metrics for k in ("before", "after", "customized"))
    assert before["weight"] == after["weight"] == customized["weight"]
    assert before["batches"] == after["batches"] == 32 // 2 // 4
    assert after["wrapped"] and after["global_batch_size"] == 8


def check_dict(state: dict[str, Any], epoch: int, id: int) -> None:
    """As lines 264 and 349 print it, keys in any order."""
    assert sorted(state) == ["_current_checkpoint_id", "_preprocessor", "_timestamp", "epoch",
                             "model_weights"]
    assert state["epoch"] == epoch and state["_current_checkpoint_id"] == id
    assert state["_preprocessor"] is None and abs(state["_timestamp"] - time.time()) < 60
    weights = state["model_weights"]
    assert isinstance(weights, OrderedDict) and sorted(weights) == ["bias", "weight"]
    assert weights["bias"].shape == (1,) and weights["weight"].shape == (1, 4)


def test_saving(capsys: pytest.CaptureFixture[str]) -> None:
    left = program("d004_saving")
    state = left["result"].checkpoint.to_dict()
    check_dict(state, 4, 4)
    assert capsys.readouterr().out == f"{state}\n"
    best = left["result"].best_checkpoints
    assert best and best[-1][0].to_dict()["epoch"] == 4


def test_loading() -> None:
    left = program("d004_loading")
    check_dict(left["first"], 1, 1)
    check_dict(left["result"].checkpoint.to_dict(), 3, 2)


def test_torchmetrics() -> None:
    """What rank 0 reports is of both workers: the same as of a single one that has seen all."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    left = program("d004_torchmetrics")
    said = left["result"].metrics
    weight, bias = (torch.tensor(w) for w in said["weights"])
    g = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=g)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.01 * torch.randn(120, 1, generator=g)
    x, y = x[96:], y[96:]
    error = torch.nn.functional.mse_loss(x @ weight.T + bias, y).item()
    assert said["mean_valid_loss"] == pytest.approx(error, rel=1e-4)
    assert said["r2_score"] == pytest.approx(1 - error / y.var(correction=0).item(), rel=1e-4)
    assert said["own_valid_loss"] != pytest.approx(error, rel=1e-4)
    assert said["mean_train_loss"] > error


def test_amp() -> None:
    """Computed in 16 bits, kept in 32."""
    left = program("d004_amp")
    frame = left["result"].metrics
    assert frame["kinds"] in (["torch.bfloat16"], ["torch.float16"])
    assert frame["weight"] == "torch.float32" and frame["loss"] < left["result"].rows[0]["loss"]


def test_reproducibility() -> None:
    left = program("d004_reproducibility")
    a, b = ({k: m[k] for k in ("loss", "weight")} for m in left["same"])
    assert a == b
    c, d = left["other"]
    assert c["loss"] != d["loss"] and c["weight"] != d["weight"]


def test_the_import_lines_of_the_document(tmp_path: Path) -> None:
    """With ray in them, as they are there."""
    said = program_as_ray("d004_loading", tmp_path)
    assert re.search(r"'epoch': 3\b", said) and re.search(r"'_current_checkpoint_id': 2\b", said)

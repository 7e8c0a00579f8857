# SPDX-License-Identifier: Apache-2.0
"""Generation 3: a trainer's fit(), the configs it takes and the result it gives."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from manta import air, train
from manta.air import (Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig,
                       ScalingConfig, session)
from manta.train import DataParallelTrainer, SGDCallback, TrainingFailedError


def fit(loop: Callable[..., Any], config: Any = None, *, workers: int = 1, resume: Any = None,
        tmp: Path | None = None, **run: Any) -> Result:
    """Without a framework."""
    return DataParallelTrainer(
        loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=tmp, verbose=0, **run),
        resume_from_checkpoint=resume).fit()


# --- a run ----------------------------------------------------------------------------------------


def counting(config: dict[str, Any]) -> None:
    found = session.get_checkpoint()
    start = found.to_dict()["step"] + 1 if found else 0
    for step in range(start, config["steps"]):
        session.report({"step": step, "rank": session.get_world_rank()},
                       checkpoint=Checkpoint.from_dict({"step": step, "w": [1.5] * 4}))


def test_metrics_and_checkpoint_are_rank_0s(tmp_path: Path) -> None:
    result = fit(counting, {"steps": 3}, workers=2, tmp=tmp_path, name="first")
    assert (result.metrics["step"], result.metrics["rank"]) == (2, 0)
    assert result.metrics["training_iteration"] == 3 and result.metrics["done"] is False
    assert result.metrics["time_total_s"] >= result.metrics["time_this_iter_s"] > 0
    assert {"timestamp", "date", "trial_id", "_timestamp"} <= set(result.metrics)
    assert [row["step"] for row in result.rows] == [0, 1, 2]
    assert result.error is None and result.config == {"steps": 3}
    assert result.log_dir == Path(result.path) and result.log_dir.parent == tmp_path / "first"
    assert result.checkpoint is not None
    saved = result.checkpoint.to_dict()
    assert list(saved) == ["step", "w", "_timestamp", "_preprocessor", "_current_checkpoint_id"]
    assert saved["step"] == 2 and saved["w"] == [1.5] * 4 and saved["_preprocessor"] is None
    assert abs(saved["_timestamp"] - time.time()) < 60
    assert result.checkpoint.path.startswith(result.path)


def test_numbers_of_checkpoints(tmp_path: Path) -> None:
    """From 0; in a resumed run from that of the one it was given, as document 004 prints it."""
    first = fit(counting, {"steps": 2}, tmp=tmp_path)
    assert first.checkpoint is not None
    assert first.checkpoint.to_dict()["_current_checkpoint_id"] == 1
    for given in (first.checkpoint, Checkpoint.from_dict(first.checkpoint.to_dict()),
                  Checkpoint(first.checkpoint.path, trust=True)):
        again = fit(counting, {"steps": 4}, resume=given, tmp=tmp_path)
        assert again.checkpoint is not None
        found = again.checkpoint.to_dict()
        assert (found["step"], found["_current_checkpoint_id"]) == (3, 2)

# SPDX-License-Identifier: Apache-2.0
"""MlflowCallback against a small server, and what both callbacks take. The real packages and
servers are in with_trackers/."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import sgd
from manta.sgd import MlflowCallback, Trainer, WandbCallback

FAKE = Path(__file__).resolve().parents[2] / "tests" / "sink" / "fake_mlflow.py"


@pytest.fixture
def server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, str(FAKE)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()
    process.stdout.close()


def dump(uri: str) -> Any:
    with urllib.request.urlopen(uri + "/dump", timeout=20) as reply:
        return json.load(reply)


def train(config: dict[str, Any]) -> int:
    for i in range(1, 6):
        sgd.report(loss=config["lr"] / i)
    return 7


def test_a_run_is_sent(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    with Trainer(None, num_workers=2, logdir=tmp_path) as t:
        callback = sgd.MLflowLoggerCallback(experiment_name="e", tags={"a": 1},
                                            workers_to_log="all")
        assert t.run(train, {"lr": 0.5}, callbacks=[callback]) == [7, 7]
    run, = dump(server)["runs"]
    assert run["status"] == "FINISHED" and run["params"] == {"lr": "0.5"}
    assert run["tags"]["a"] == "1" and sorted(run["metrics"]) == ["loss/rank-0", "loss/rank-1"]
    assert [step for step, *_ in run["metrics"]["loss/rank-1"]] == [1, 2, 3, 4, 5]


def test_a_tracker_that_cannot_work_stops_nothing(tmp_path: Path,
                                                  capfd: pytest.CaptureFixture[str]) -> None:
    callback = WandbCallback("project", mode="offline")
    callback._options["python"] = "/usr/bin/false"
    with Trainer(None, num_workers=1, logdir=tmp_path) as t:
        t.start()
        runs = t.run_iterator(train, {"lr": 1}, callbacks=[callback])
        assert [reports["loss"] for reports in runs][0] == 1
        assert runs.get_returns() == [7]
    assert "sink wandb" in capfd.readouterr().err


def test_secrets_are_not_written() -> None:
    with pytest.raises(ValueError, match="export MLFLOW_TRACKING_TOKEN"):
        MlflowCallback("http://a", tracking_token="x")
    with pytest.raises(ValueError, match="experiment_name"):
        MlflowCallback("http://a", experiment_id="3")

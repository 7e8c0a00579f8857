# SPDX-License-Identifier: Apache-2.0
"""MlflowCallback against a small server, and what both callbacks take. The real packages and
servers are in with_trackers/."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import _command, sgd
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


def test_secrets_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the environment of this process, which that of the sinks has."""
    for name in ("MLFLOW_TRACKING_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "before")
    callbacks = [MlflowCallback("http://127.0.0.1:9", tracking_token="secret-1"),
                 WandbCallback("project", api_key="secret-2")]
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "secret-1"
    assert os.environ["WANDB_API_KEY"] == "secret-2"
    assert "secret" not in json.dumps([c._options for c in callbacks])


def test_what_wandb_takes(tmp_path: Path) -> None:
    """By the names of Ray's callback; what is not its own goes to wandb.init."""
    callback = sgd.WandbLoggerCallback(
        project="p", group="g", api_key_file=tmp_path / "key", excludes=["a"], log_config=True,
        upload_checkpoints=True, entity="e", job_type="sweep", notes="n")
    options = {k: v for k, v in callback._options.items() if k not in ("python", "workers")}
    assert options == {"project": "p", "group": "g", "entity": "e", "excludes": ["a"],
                       "api_key_file": str(tmp_path / "key"), "upload_checkpoints": True,
                       "init": {"job_type": "sweep", "notes": "n"}}
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        WandbCallback(settings=object())


def test_an_experiment_and_a_server_by_position() -> None:
    given = MlflowCallback("digits", "http://a:1")._options
    assert given["experiment_name"] == "digits" and given["tracking_uri"] == "http://a:1"
    of_ray = MlflowCallback("http://a:1", "http://registry", "7")._options
    assert of_ray["tracking_uri"] == "http://a:1" and of_ray["experiment_id"] == "7"
    assert MlflowCallback("digits")._options["tracking_uri"] == "digits"  # a folder, as MLflow's
    assert "tracking_uri" not in MlflowCallback(registry_uri="http://registry")._options
    local = MlflowCallback("sqlite:///a.db", "http://registry")._options
    assert local["tracking_uri"] == "sqlite:///a.db" and "experiment_name" not in local


def test_an_experiment_by_its_id(server: str, tmp_path: Path) -> None:
    """Each trial of an experiment is a run there."""
    from manta import tune
    callback = MlflowCallback(server, experiment_id="0", tags={"who": "me"})
    found = tune.run(lambda config: {"loss": config["x"]}, {"x": tune.grid_search([1, 2, 3])},
                     verbose=0, local_dir=tmp_path, callbacks=[callback])
    runs = dump(server)["runs"]
    assert sorted(r["params"]["x"] for r in runs) == ["1", "2", "3"]
    assert {r["status"] for r in runs} == {"FINISHED"} and runs[0]["tags"]["who"] == "me"
    push = [_command.path(), "mlflow", "push", str(Path(found.trials[0].logdir).parent)]
    subprocess.run([*push, "--tracking-uri", server], check=True, timeout=50)
    assert len(dump(server)["runs"]) == 3  # nothing was missing
    assert all(r["metrics"]["loss"][0][2] == f"{r['params']['x']}.0" for r in runs)

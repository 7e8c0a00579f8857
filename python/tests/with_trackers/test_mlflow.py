# SPDX-License-Identifier: Apache-2.0
"""MLflow's own server, and its stores without one: what it has of a run, asked by its client."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest
from mlflow import MlflowClient

from manta import sgd
from manta.sgd import MlflowCallback, Trainer

START_S = 120.0
pytestmark = pytest.mark.deadline(300)  # a fresh database takes the server half a minute


class Server:
    def __init__(self, folder: Path):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--backend-store-uri",
             f"sqlite:///{folder}/m.db", "--artifacts-destination", str(folder / "files"),
             "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        by = time.monotonic() + START_S
        while not self._is_up():
            assert self.process.poll() is None and time.monotonic() < by, "the server did not start"
            time.sleep(0.2)

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(self.uri + "/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    s = Server(tmp_path_factory.mktemp("mlflow"))
    yield s
    s.stop()


def train(config: dict[str, Any]) -> None:
    begin = (sgd.load_checkpoint() or {"i": 0})["i"]
    for i in range(begin + 1, config["n"] + 1):
        time.sleep(config["s"])
        sgd.report(loss=1 / i, odd=math.nan if i == 2 else 1, nested={"x": i}, **{"损失": i})
        if i % 10 == 0:
            sgd.save_checkpoint(i=i)
        if config.get("die") == i and begin == 0 and sgd.world_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(tmp_path: Path, uri: str, name: str, n: int = 25, s: float = 0, die: int = 0,
        **options: Any) -> Any:
    """The run as MLflow's client sees it, and the client."""
    config = {"n": n, "s": s, "die": die, "deep": {"lr": 0.5}}
    with Trainer(None, num_workers=1, logdir=tmp_path / "runs") as t:
        t.run(train, config, callbacks=[MlflowCallback(uri, experiment_name=name, **options)])
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    found, = client.search_runs([experiment.experiment_id])
    return client, found


def steps(client: MlflowClient, run: Any, key: str = "loss") -> list[int]:
    return sorted(m.step for m in client.get_metric_history(run.info.run_id, key))


def test_a_run_on_a_real_server(server: Server, tmp_path: Path) -> None:
    client, found = run(tmp_path, server.uri, "first", tags={"who": "me"}, save_artifact=True)
    assert found.info.status == "FINISHED" and found.data.tags["who"] == "me"
    assert found.data.params["deep/lr"] == "0.5" and found.data.params["n"] == "25"
    assert steps(client, found) == list(range(1, 26)) == steps(client, found, "nested/x")
    assert [m.value for m in client.get_metric_history(found.info.run_id, "loss")] == [
        1 / i for i in range(1, 26)]
    names = [f.path for f in client.list_artifacts(found.info.run_id)]
    assert "checkpoints" in names and not any(n.startswith("run.log") for n in names), names


def test_a_revival_goes_on_with_the_same_run(server: Server, tmp_path: Path) -> None:
    client, found = run(tmp_path, server.uri, "revived", n=40, s=0.01, die=25)
    assert steps(client, found) == list(range(1, 41)) and found.info.status == "FINISHED"


def test_a_frozen_server_gets_all_later(server: Server, tmp_path: Path) -> None:
    server.signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        with Trainer(None, num_workers=1, logdir=tmp_path / "runs") as t:
            t.run(train, {"n": 200, "s": 0},
                  callbacks=[MlflowCallback(server.uri, experiment_name="frozen")])
            directory = t.latest_run_dir
    finally:
        server.signal(signal.SIGCONT)
    assert time.monotonic() - began < 30
    from manta import _command
    done = subprocess.run([_command.path(), "mlflow", "push", str(directory)],
                          capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("frozen")
    assert experiment is not None
    found, = client.search_runs([experiment.experiment_id])
    assert steps(client, found) == list(range(1, 201)) and found.info.status == "FINISHED"


def test_a_store_that_is_no_server(tmp_path: Path) -> None:
    client, found = run(tmp_path, f"sqlite:///{tmp_path}/own.db", "local", n=20, s=0.01, die=15,
                        save_artifact=False)
    assert steps(client, found) == list(range(1, 21)) and found.info.status == "FINISHED"
    assert steps(client, found, "损失") == list(range(1, 21))
    assert found.data.params["deep/lr"] == "0.5"


def test_a_store_that_mlflow_refuses_is_not_waited_for(tmp_path: Path,
                                                       capfd: pytest.CaptureFixture[str]) -> None:
    with Trainer(None, logdir=tmp_path) as t:
        t.run(train, {"n": 3, "s": 0}, callbacks=[MlflowCallback("gopher://nobody/there")])
    said = capfd.readouterr().err
    assert "gopher" in said and "did not get all" in said, said
    assert "trying again" not in said and "Traceback" not in said, said


def test_each_trial_is_a_run(server: Server, tmp_path: Path) -> None:
    from manta import tune
    from manta.air.integrations.mlflow import MLflowLoggerCallback
    tune.run(lambda config: tune.report(loss=config["x"]), {"x": tune.grid_search([1, 2])},
             verbose=0, local_dir=tmp_path,
             callbacks=[MLflowLoggerCallback(server.uri, experiment_name="tuned")])
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("tuned")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id])
    assert sorted((r.data.params["x"], r.data.metrics["loss"]) for r in found) == [("1", 1.0),
                                                                                   ("2", 2.0)]
    assert {r.info.status for r in found} == {"FINISHED"}


def by_itself(config: dict[str, Any]) -> None:
    """Logs in the worker, dies once, and goes on with the same run."""
    from manta.air.integrations.mlflow import setup_mlflow
    mlflow = setup_mlflow(config, tracking_uri=config["uri"], experiment_name="by itself",
                          create_experiment_if_not_exists=True)
    start = (sgd.load_checkpoint() or {"i": 0})["i"]
    for i in range(start, 4):
        mlflow.log_metric("loss", 1 / (i + 1), step=i)
        sgd.save_checkpoint(i=i + 1)
        sgd.report(i=i)
        if i == 1 and start == 0 and sgd.world_rank() == 0:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_train_function_logs_by_itself(server: Server, tmp_path: Path) -> None:
    with Trainer(None, num_workers=2, logdir=tmp_path) as t:
        t.run(by_itself, {"uri": server.uri, "deep": {"lr": 0.5}})
    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("by itself")
    assert experiment is not None
    found, = client.search_runs([experiment.experiment_id])  # rank 1 has none
    assert set(steps(client, found)) == {0, 1, 2, 3} and found.info.status == "FINISHED"
    assert found.data.params["deep/lr"] == "0.5"


def trial_by_itself(config: dict[str, Any]) -> None:
    from manta import tune
    from manta.air.integrations.mlflow import setup_mlflow
    setup_mlflow(config).log_metric("loss", config["x"])
    tune.report(loss=config["x"])
    if config["x"] == 2:
        raise ValueError("no use")


def test_a_trial_logs_by_itself(server: Server, tmp_path: Path) -> None:
    """As the part of the config says; its run ends as it does."""
    from manta import tune
    client = MlflowClient(server.uri)
    experiment = client.create_experiment("trials")
    tune.run(trial_by_itself, {"x": tune.grid_search([1, 2]),
                               "mlflow": {"tracking_uri": server.uri, "experiment_name": "trials"}},
             verbose=0, local_dir=tmp_path, raise_on_failed_trial=False)
    found = {r.data.params["x"]: r for r in client.search_runs([experiment])}
    assert {x: r.info.status for x, r in found.items()} == {"1": "FINISHED", "2": "FAILED"}
    assert found["1"].data.metrics == {"loss": 1.0} and list(found["1"].data.params) == ["x"]

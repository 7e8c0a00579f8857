# SPDX-License-Identifier: Apache-2.0
"""Callbacks of an experiment: sinks, which write what each trial reports, and the user's own. The
real TensorBoard shows the trials on its HPARAMS page."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from children import child
from manta import _command, sgd, tune
from manta.train import DataParallelTrainer
from manta.tune.logger import (CSVLoggerCallback, JsonLoggerCallback, LoggerCallback,
                               TBXLoggerCallback, pretty_print)

ROOT = Path(__file__).parents[3]


def train(config: dict[str, Any]) -> None:
    import time as clock
    for i in range(1, config.get("rows", 5) + 1):
        clock.sleep(config.get("pause", 0))
        tune.report(loss=config["x"] + 1 / i, weights=[0.5, float(i)])
    if config.get("fails"):
        raise ValueError("no use")


def iterations(trial: Any) -> list[int]:
    rows = json.loads((Path(trial.logdir) / "results.json").read_text())
    return [row["_training_iteration"] for (row,) in rows]


class Board:
    """The real TensorBoard, over a directory; what the page of a plugin asks for."""

    def __init__(self, folder: Path, runs: int):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [ROOT / "build/tensorboard/bin/python", "-m", "tensorboard.main", "--logdir", folder,
             "--host", "127.0.0.1", "--port", str(port), "--load_fast", "false",
             "--reload_interval", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        by = time.monotonic() + 100
        while self._runs() < runs:
            assert time.monotonic() < by and self.process.poll() is None
            time.sleep(0.1)

    def _runs(self) -> int:
        try:
            return len(self.ask("/data/runs"))
        except OSError:
            return -1

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())

    def trials(self) -> dict[str, Any]:
        """The rows of the HPARAMS page: parameters, last metrics and status of each."""
        states = [f"STATUS_{s}" for s in ("SUCCESS", "FAILURE", "RUNNING", "UNKNOWN")]
        found = self.ask("/data/plugin/hparams/session_groups", {
            "experimentName": "", "allowedStatuses": states, "startIndex": 0, "sliceSize": 100,
            "colParams": [{"hparam": "x"}, {"hparam": "kind"},
                          {"metric": {"tag": "loss", "group": ""}, "includeInResult": True}]})
        return {g["name"]: (g["hparams"], {m["name"]["tag"]: round(m["value"], 3)
                                           for m in g["metricValues"]}.get("loss"),
                            g["sessions"][0]["status"]) for g in found["sessionGroups"]}


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    subprocess.run([ROOT / "scripts" / "tensorboard"], check=True, timeout=280)
    yield


# --- sinks ----------------------------------------------------------------------------------------


@pytest.mark.deadline(300)
def test_tensorboard_compares_the_trials(tmp_path: Path, installed: None) -> None:
    """Parameters, metrics and how each trial ended, as its HPARAMS page asks for them."""
    found = tune.run(train, {"x": tune.grid_search([1.0, 2.0, 3.0]), "kind": "a",
                             "fails": tune.sample_from(lambda spec: spec.config.x == 2)},
                     metric="loss", mode="min", verbose=0, raise_on_failed_trial=False,
                     local_dir=tmp_path, callbacks=[TBXLoggerCallback()])
    board = Board(Path(found.trials[0].logdir).parent, 3)
    try:
        assert board.trials() == {
            f"trial_0000{i}": ({"x": i + 1.0, "kind": "a"}, i + 1.2, f"STATUS_{how}")
            for i, how in enumerate(("SUCCESS", "FAILURE", "SUCCESS"))}
        drawn = board.ask("/data/plugin/scalars/scalars?run=trial_00001&tag=loss")
        assert [step for _, step, _ in drawn] == [1, 2, 3, 4, 5]
        assert "weights" in board.ask("/data/plugin/histograms/tags")["trial_00000"]
    finally:
        board.process.kill()
        board.process.wait()


def test_a_killed_process_of_sinks_doubles_nothing(
        tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    killed: list[int] = []

    def kill() -> None:
        while (pid := child("manta-sink")) is None:
            time.sleep(0.01)
        while not any(tmp_path.glob("*/trial_0000*/results.json")):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    found = tune.run(train, {"x": tune.grid_search(list(range(6))), "rows": 30, "pause": 0.01},
                     verbose=0, local_dir=tmp_path, max_concurrent_trials=2, callbacks=[
                         JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()])
    thread.join()
    assert len(killed) == 1 and "the process of the sinks died" in capfd.readouterr().err
    for t in found.trials:
        there = Path(t.logdir)
        assert iterations(t) == list(range(1, 31))
        assert len((there / "progress.csv").read_text().splitlines()) == 31
        assert json.loads((there / "params.json").read_text())["x"] == t.config["x"]
        assert len(list(there.glob("events.out.tfevents.*"))) == 1
    assert child("manta-sink") is None


RESUMED = """
import time
from manta import tune
from manta.tune.logger import JsonLoggerCallback

def train(config):
    for i in range(1, 41):
        time.sleep(0.02)
        tune.report(loss=config["x"] + 1 / i)

found = tune.run(train, {{"x": tune.grid_search([1, 2])}}, verbose=0, name="again",
                 local_dir={folder!r}, resume={resume}, seed=1,
                 max_concurrent_trials=2, callbacks=[JsonLoggerCallback()])
"""


def test_a_resumed_experiment_goes_on_in_the_same_files(tmp_path: Path) -> None:
    def begin(resume: bool) -> subprocess.Popen[bytes]:
        code = RESUMED.format(folder=str(tmp_path), resume=resume)
        return subprocess.Popen([sys.executable, "-c", code])

    first = begin(False)
    by = time.monotonic() + 50
    while sum(f.read_text().count("loss") >= 3 for f in tmp_path.glob("*/*/results.jsonl")) < 2:
        assert time.monotonic() < by and first.poll() is None
        time.sleep(0.02)
    first.kill()
    first.wait()
    assert begin(True).wait(50) == 0
    found = tune.ExperimentAnalysis(next(tmp_path.iterdir()))
    assert [iterations(t) for t in found.trials] == [list(range(1, 41))] * 2


def test_a_sink_that_cannot_work_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]
                                         ) -> None:
    (tmp_path / "file").write_text("")
    found = tune.run(train, {"x": 1}, verbose=0, local_dir=tmp_path / "runs",
                     callbacks=[JsonLoggerCallback(tmp_path / "file")])
    said = capfd.readouterr().err
    assert found.trials[0].status == "TERMINATED"
    assert "sink json: " in said and "did not get all\nhint: `manta sink " in said
    (tmp_path / "file").unlink()
    experiment = Path(found.trials[0].logdir).parent
    subprocess.run([_command.path(), "sink", experiment], check=True,
                   timeout=50)
    written = json.loads((tmp_path / "file" / "trial_00000" / "results.json").read_text())
    assert len(written) == 5


# --- callbacks of the user's ----------------------------------------------------------------------


class Log(LoggerCallback):
    def __init__(self) -> None:
        self.said: list[Any] = []

    def log_trial_start(self, trial: Any) -> None:
        self.said.append(("start", trial.trial_id, trial.config["x"]))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        self.said.append(result["training_iteration"])

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self.said.append(("end", failed))


def test_a_logger_is_told_of_each_trial() -> None:
    log = Log()
    tune.run(train, {"x": 1, "rows": 2}, verbose=0, callbacks=[log])
    assert log.said == [("start", "00000", 1), 1, 2, ("end", False)]
    assert '"loss": 2' in pretty_print({"loss": 2, "config": {}, "none": None})


class Less(JsonLoggerCallback):
    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        super().log_trial_result(iteration, trial, {k: v for k, v in result.items()
                                                    if k != "weights"})


def test_a_subclass_of_a_sink_writes_what_it_passes_on() -> None:
    found = tune.run(train, {"x": tune.grid_search([1, 2]), "rows": 2}, verbose=0,
                     callbacks=[Less()])
    for t in found.trials:
        rows = json.loads((Path(t.logdir) / "results.json").read_text())
        assert [row["training_iteration"] for (row,) in rows] == [1, 2]
        assert "weights" not in rows[0][0] and rows[0][0]["loss"] == t.config["x"] + 1


def loop(config: dict[str, Any]) -> None:
    for i in range(2):
        sgd.report(loss=i)


def test_callbacks_of_experiments_in_fit_and_tuner(tmp_path: Path) -> None:
    log = Log()
    run_config = tune.RunConfig(storage_path=tmp_path, callbacks=[log, JsonLoggerCallback()])
    result = DataParallelTrainer(loop, train_loop_config={"x": 5}, run_config=run_config).fit()
    assert log.said[0][::2] == ("start", 5) and log.said[1:] == [1, 2, ("end", False)]
    assert len(json.loads((Path(result.path) / "results.json").read_text())) == 2
    tune.Tuner(train, param_space={"x": 1, "rows": 1}, run_config=run_config).fit()
    assert log.said[-3:] == [("start", "00000", 1), 1, ("end", False)]


def test_one_that_raises(capfd: pytest.CaptureFixture[str]) -> None:
    class Bad(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any,
                            **info: Any) -> None:
            raise KeyError("nowhere")

    found = tune.run(train, {"x": 1, "rows": 3}, verbose=0, callbacks=[Bad()])
    said = capfd.readouterr().err
    assert said.count("Bad.on_trial_result failed; the experiment continues\nTraceback") == 1
    assert said.endswith("Bad.on_trial_result failed 3 times with KeyError\n")
    assert said.count("KeyError: 'nowhere'") == 1 and found.trials[0].status == "TERMINATED"
    bad = Bad()
    bad.on_error = "raise"
    with pytest.raises(KeyError):
        tune.run(train, {"x": 1, "rows": 1}, verbose=0, callbacks=[bad])


@pytest.mark.parametrize("wrong, said", [
    (sgd.PrintCallback(), "is not a callback of experiments: it has no on_trial_result\nhint: "),
    (LoggerCallback, "a callback is an object, not the class LoggerCallback"),
])
def test_others_are_refused(wrong: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        tune.run(train, {"x": 1}, callbacks=[wrong])

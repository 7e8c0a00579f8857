#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The MLflow sink against a small server: one run there, every row once, whatever happens."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cmd"))
from bed import Bed, Done, main  # noqa: E402

bed = Bed()
TRACKED = os.environ["MANTA_TRACKED"]
MODULES = {"MANTA_MODULES": os.environ["MANTA_LIBDIR"]}


class Server:
    def __init__(self, port: int = 0, *state: str):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fake_mlflow.py")), str(port), *state],
            stdout=subprocess.PIPE, text=True)
        bed.started.append(self.process)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())
        self.uri = f"http://127.0.0.1:{self.port}"

    def dump(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.uri + "/dump", timeout=20) as reply:
            found: dict[str, Any] = json.load(reply)
        return found

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def track(uri: str, n: int, us: int, *words: str, options: dict[str, Any] | None = None,
          **env: str) -> Done:
    given = {"tracking_uri": uri, "experiment_name": "e & x", **(options or {})}
    return bed.run(TRACKED, "mlflow", json.dumps(given), n, us, *words, **MODULES, **env)


def the_run(server: Server) -> dict[str, Any]:
    run, = server.dump()["runs"]
    found: dict[str, Any] = run
    return found


def steps(run: dict[str, Any], key: str = "loss") -> list[int]:
    return [step for step, *_ in run["metrics"][key]]


def test_a_run_is_there_with_all_of_it() -> None:
    server = Server()
    done = track(server.uri, 40, 0, options={"tags": {"who": "me", "n": 3}, "run_name": "first"},
                 MLFLOW_TRACKING_TOKEN="secret")
    assert done.code == 0 and not done.err, done
    all_ = server.dump()
    assert list(all_["experiments"]) == ["e & x"] and all_["auth"] == ["Bearer secret"], all_
    run, = all_["runs"]
    assert run["status"] == "FINISHED" and run["name"] == "first" and run["end"] > 0
    assert run["tags"]["who"] == "me" and run["tags"]["n"] == "3"
    assert run["tags"]["manta.directory"] == str(bed.runs()[-1])
    assert run["params"] == {"n": "40", "us": "0", "kill": "0", "deep/lr": "0.5", "text": "a b"}
    assert sorted(run["metrics"]) == ["inner/deep", "loss", "odd_name_", "verlust_ä 损失", "精度__"]
    assert steps(run) == list(range(1, 41))
    values = [float(value) for *_, value in run["metrics"]["odd_name_"]]
    assert math.isnan(values[2]) and values[3] == 1
    assert [float(value) for *_, value in run["metrics"]["loss"]] == [1 / i for i in range(1, 41)]
    server.stop()


def test_every_worker_has_its_own_metrics() -> None:
    server = Server()
    assert track(server.uri, 3, 0, options={"workers": "all"}).code == 0
    run = the_run(server)
    assert steps(run, "loss/rank-0") == steps(run, "loss/rank-1") == [1, 2, 3]
    server.stop()


def test_a_revival_makes_no_second_run_and_no_row_twice() -> None:
    server = Server()
    done = track(server.uri, 60, 2000, "kill")
    assert done.code == 0 and "killed by signal 9" in done.err, done
    assert bed.status()["restarts"] == 1
    run = the_run(server)
    assert steps(run) == list(range(1, 61)) and run["status"] == "FINISHED"
    server.stop()


def test_what_a_server_missed_is_pushed_later() -> None:
    server = Server()
    server.stop()
    began = time.monotonic()
    done = track(server.uri, 20, 0)
    assert done.code == 0 and time.monotonic() - began < 20, done
    assert "did not get all" in done.err and "manta mlflow push" in done.err, done
    down = bed.manta("mlflow", "push", "latest", **MODULES)
    assert down.code == 1 and "manta: " in down.err, down
    server = Server(server.port)
    for _ in range(2):
        pushed = bed.manta("mlflow", "push", "latest", **MODULES)
        assert pushed.code == 0, pushed
        run = the_run(server)
        assert steps(run) == list(range(1, 21)) and run["status"] == "FINISHED"
    server.stop()


def test_a_server_that_goes_away_half_way() -> None:
    state = str(bed.root / "state")
    server = Server(0, state)
    threading.Timer(0.5, server.stop).start()
    done = track(server.uri, 100, 10000)
    assert done.code == 0 and "did not get all" in done.err, done
    server = Server(server.port, state)
    before = the_run(server)
    assert 0 < len(steps(before)) < 100 and before["status"] == "RUNNING", before
    pushed = bed.manta("mlflow", "push", "latest", **MODULES)
    assert pushed.code == 0, pushed
    run = the_run(server)
    assert steps(run) == list(range(1, 101)) and run["status"] == "FINISHED", run["metrics"]
    server.stop()


def test_a_frozen_server_delays_nothing_and_misses_nothing() -> None:
    server = Server()
    os.kill(server.process.pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (server.process.pid, signal.SIGCONT)).start()
    done = track(server.uri, 50, 2000)
    assert done.code == 0, done
    seconds = bed.status()["seconds"]
    assert seconds < 0.9 * float(os.environ.get("MANTA_TEST_SLOWER", "1")), seconds
    pushed = bed.manta("mlflow", "push", "latest", **MODULES)
    assert pushed.code == 0, pushed
    run = the_run(server)
    assert steps(run) == list(range(1, 51)) and run["status"] == "FINISHED"
    server.stop()


def test_a_run_without_a_sink_can_be_sent() -> None:
    server = Server()
    assert bed.run(TRACKED, "json", "{}", 5, 0).code == 0
    pushed = bed.manta("mlflow", "push", "latest", "--tracking-uri", server.uri,
                       "--experiment", "later", **MODULES)
    assert pushed.code == 0, pushed
    assert list(server.dump()["experiments"]) == ["later"]
    run = the_run(server)
    assert steps(run) == [1, 2, 3, 4, 5] and run["params"]["deep/lr"] == "0.5"
    assert (bed.runs()[-1] / "results.json").exists()
    server.stop()


def test_files_are_sent_if_asked() -> None:
    server = Server()
    assert track(server.uri, 10, 0, options={"save_artifact": True}).code == 0
    files = server.dump()["files"]
    assert any(name.endswith("artifacts/logs/rank-0.log") for name in files) or any(
        "artifacts/checkpoints/" in name for name in files), files
    assert any(name.endswith("/manifest.json") for name in files), files
    assert not any("run.log" in name or "/." in name for name in files), files
    server.stop()


def test_wrong_options_are_told_before_the_run() -> None:
    for options, why in (({"tracking_uri": 3}, "tracking_uri must be a string"),
                         ({"tags": "x"}, "tags must be a map"), ({"uri": "x"}, "no option")):
        done = bed.run(TRACKED, "mlflow", json.dumps(options), 1, 0)
        assert done.code == 1 and why in done.err, done
    done = bed.manta("mlflow", "pull", "latest")
    assert done.code == 2 and "can only push" in done.err, done


main(globals())

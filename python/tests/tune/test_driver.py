# SPDX-License-Identifier: Apache-2.0
"""Drivers of experiments that are killed or interrupted, and trials that run trainers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manta import air, tune
from manta.sgd import Trainer
from manta.train import DataParallelTrainer

SCRIPT = """
import os, sys, time
from pathlib import Path
from manta import tune

def train(config):
    with open(sys.argv[1] + "/begun", "a") as f:
        f.write(f"{config['n']}\\n")
    for i in range(3):
        time.sleep(0.05)
        tune.report(loss=config["n"] + i)

if __name__ == "__main__":
    found = tune.run(train, {"n": tune.grid_search(list(range(8)))}, metric="loss", mode="min",
                     local_dir=sys.argv[1], resume=sys.argv[2] == "again", verbose=0,
                     resources_per_trial={"cpu": 1}, max_concurrent_trials=2)
    print(len(found), found.best_config, [t.status for t in found.trials].count("TERMINATED"))
"""


def script(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return subprocess.Popen([sys.executable, str(path), str(tmp_path), *words], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def begun(tmp_path: Path) -> list[str]:
    path = tmp_path / "begun"
    return path.read_text().split() if path.exists() else []


def wait_for(what: Any) -> None:
    by = time.monotonic() + 30
    while not what():
        assert time.monotonic() < by
        time.sleep(0.01)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_an_experiment_goes_on_after_its_driver(tmp_path: Path, sig: signal.Signals) -> None:
    first = script(tmp_path, "new")
    wait_for(lambda: len(begun(tmp_path)) >= 5)
    first.send_signal(sig)
    first.communicate(timeout=30)
    assert first.returncode != 0 and len(begun(tmp_path)) < 8
    second = script(tmp_path, "again")
    out, err = second.communicate(timeout=50)
    assert out == "8 {'n': 0} 8\n", err
    times = {n: begun(tmp_path).count(n) for n in begun(tmp_path)}
    assert len(times) == 8 and sum(times.values()) <= 8 + 2  # only those that ran begin again
    assert times["0"] == 1


def inner(config: dict[str, Any]) -> None:
    from manta import sgd
    Path(config["where"], f"pid{sgd.world_rank()}").write_text(str(os.getpid()))
    sgd.report(rank=sgd.world_rank())
    while config["hangs"]:
        time.sleep(0.05)


def outer(config: dict[str, Any]) -> None:
    Path(config["where"], "trial").write_text(str(os.getpid()))
    trainer = Trainer(None, num_workers=2)
    trainer.run(inner, config)
    tune.report(loss=0, inside=str(trainer.latest_run_dir), mine=tune.get_trial_dir())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_the_runs_of_a_trial_are_in_its_directory(tmp_path: Path) -> None:
    found = tune.run(outer, {"where": str(tmp_path), "hangs": False}, verbose=0)
    row = found.trials[0].last_result
    assert Path(row["inside"]).is_relative_to(row["mine"])


def test_the_processes_of_a_trial_die_with_it(tmp_path: Path) -> None:
    pids: list[int] = []

    class Killer(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            files = [tmp_path / f"pid{i}" for i in (0, 1)]
            wait_for(lambda: all(f.exists() and f.read_text() for f in files))
            pids.extend(int(f.read_text()) for f in files)
            os.kill(int((tmp_path / "trial").read_text()), signal.SIGKILL)

    with pytest.raises(tune.TuneError, match="1 of 1"):
        tune.run(outer, {"where": str(tmp_path), "hangs": True}, verbose=0, callbacks=[Killer()])
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_alive, pids)))


def loop(config: dict[str, Any]) -> None:
    from manta.air import session
    for i in range(2):
        session.report({"loss": config["lr"] + config["base"], "size": session.get_world_size()},
                       checkpoint=air.Checkpoint.from_dict({"i": i}))


def test_a_tuner_takes_trainers_and_functions(tmp_path: Path) -> None:
    trainer = DataParallelTrainer(loop, train_loop_config={"base": 1, "lr": 0},
                                  scaling_config=air.ScalingConfig(num_workers=2))
    tuner = tune.Tuner(
        trainer, param_space={"train_loop_config": {"lr": tune.grid_search([0.5, 0.25])}},
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=air.RunConfig(storage_path=str(tmp_path), name="tuned", verbose=0))
    grid = tuner.fit()
    best = grid.get_best_result()
    assert tune.Tuner(lambda config: {"x": 1}).fit().get_best_result().metrics["x"] == 1  # the one
    assert len(grid) == 2 and grid.num_errors == 0 and best.metrics["loss"] == 1.25
    assert best.metrics["size"] == 2 and best.checkpoint is not None
    assert best.checkpoint.to_dict()["i"] == 1
    again = tune.Tuner.restore(grid.experiment_path).fit()
    assert [r.metrics["loss"] for r in again] == [1.5, 1.25]

# SPDX-License-Identifier: Apache-2.0
"""Experiments whose files were damaged, or that somebody else goes on with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import manta
from manta import tune

N = 12


def train(config: dict[str, Any]) -> None:
    for i in (1, 2):
        tune.report(loss=config["x"] / i)
    if config.get("removes"):
        shutil.rmtree(tune.get_trial_dir())
        tune.report(loss=0.0)


def run(where: Path, high: float = 1.0, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(train, {"x": tune.uniform(0, high), **options.pop("config", {})},
                    num_samples=N, metric="loss", mode="min", seed=3, local_dir=where, verbose=0,
                    **{"name": "damaged", **options})


def values(found: tune.ExperimentAnalysis) -> list[float]:
    return [t.last_result["loss"] for t in found.trials]


@pytest.mark.parametrize("what", ["tail", "garbage", "middle"])
def test_a_damaged_log_costs_what_it_says(tmp_path: Path, what: str, capfd: Any) -> None:
    first = run(tmp_path)
    log = Path(first.experiment_path, "experiment", "run.log")
    data = log.read_bytes()
    half = len(data) // 2
    log.write_bytes({"tail": data[:-7], "garbage": data + b"?" * 99,
                     "middle": data[:half] + b"\xff" * 64 + data[half + 64:]}[what])
    again = run(tmp_path, resume=True)
    assert values(again) == values(first)
    assert {t.status for t in again.trials} == {"TERMINATED"}
    kept = log.with_name("run.log.damaged")
    assert kept.exists() == (what == "middle")
    assert ("is damaged" if what == "middle" else "torn tail") in capfd.readouterr().err


def test_an_experiment_has_one_driver(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    class Second(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            if not raised:
                with pytest.raises(manta.Error, match="has a driver") as e:
                    run(tmp_path, resume=True)
                raised.append(e.value)

    found = run(tmp_path, callbacks=[Second()])
    assert raised and len(found) == N


def test_another_space_is_another_experiment(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ValueError, match="another space"):
        run(tmp_path, 2.0, resume=True)


def made() -> Any:
    class Model:
        """As a script that is run again makes it: another one, with another pickle."""
    return Model


def test_objects_may_be_made_anew(tmp_path: Path) -> None:
    first = run(tmp_path, config={"model": made(), "act": tune.choice([made(), abs])})
    again = run(tmp_path, config={"model": made(), "act": tune.choice([made(), abs])}, resume=True)
    assert values(again) == values(first)
    with pytest.raises(ValueError, match="another space"):
        run(tmp_path, config={"model": made(), "act": tune.choice([made()])}, resume=True)


def test_a_trial_may_lose_its_directory(tmp_path: Path) -> None:
    found = run(tmp_path, config={"removes": True})
    assert values(found) == [0.0] * N

# SPDX-License-Identifier: Apache-2.0
"""tune.run: functions, classes and distributed runs with many configs."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manta import sgd, tune
from manta.tune import TuneError
from manta.tune.result import DEFAULT_METRIC


def bowl(config: dict[str, Any]) -> None:
    for i in range(3):
        tune.report(loss=(config["x"] - 3) ** 2 / (i + 1), step=i)


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "metric": "loss", "mode": "min", **options})


# --- what can be tuned ----------------------------------------------------------------------------


def test_a_function_is_tried_with_many_configs(tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 10), "g": tune.grid_search(["a", "b"]), "fixed": (1, 2)}
    found = run(bowl, space, num_samples=4, local_dir=tmp_path, seed=1, name="bowl")
    assert len(found) == 8 and [t.config["g"] for t in found.trials] == ["a", "b"] * 4
    assert {t.status for t in found.trials} == {"TERMINATED"}
    best = min(abs(t.config["x"] - 3) for t in found.trials)
    assert abs(found.best_config["x"] - 3) == best and found.best_config["fixed"] == (1, 2)
    assert found.best_result["training_iteration"] == 3
    assert [r["step"] for r in found.trials[0].rows] == [0, 1, 2]
    assert Path(found.best_logdir).parent == Path(found.experiment_path)
    again = tune.ExperimentAnalysis(found.experiment_path)
    assert again.best_config["x"] == found.best_config["x"] and again.default_metric == "loss"


def test_the_same_seed_gives_the_same_configs() -> None:
    configs = [[t.config for t in run(bowl, {"x": tune.randn()}, num_samples=3, seed=s).trials]
               for s in (5, 5, 6)]
    assert configs[0] == configs[1] != configs[2]


def test_what_a_function_returns_is_its_last_report() -> None:
    found = run(lambda config: {"loss": config["x"] * 2}, {"x": tune.choice([4])})
    assert found.best_result["loss"] == 8


def yields(config: dict[str, Any]) -> Iterator[Any]:
    for i in range(4):
        yield {"loss": config["x"] + i} if config["named"] else config["x"] + i


@pytest.mark.parametrize("named, metric", [(True, "loss"), (False, DEFAULT_METRIC)])
def test_what_a_function_yields_are_its_reports(named: bool, metric: str) -> None:
    found = run(yields, {"x": 5, "named": named}, metric=metric, stop={metric: 7})
    assert [r[metric] for r in found.trials[0].rows] == [5, 6, 7]


def test_reports_take_dicts_and_one_number() -> None:
    def both(config: Any) -> None:
        tune.report({"loss": 1.5})
        tune.report(2.5)

    rows = run(both).trials[0].rows
    assert rows[0]["loss"] == 1.5 and rows[1]["_metric"] == 2.5


class Steps(tune.Trainable):
    def setup(self, config: dict[str, Any], bonus: int = 0) -> None:
        self.at, self.bonus = 0, bonus

    def step(self) -> dict[str, Any]:
        self.at += 1
        return {"loss": self.config["x"] / self.at + self.bonus, "at": self.at,
                "done": self.at == 4}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"at": self.at}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.at = checkpoint["at"]


def test_a_class_is_tried_in_steps() -> None:
    found = run(Steps, {"x": tune.grid_search([4, 8])}, checkpoint_at_end=True)
    assert [t.last_result["loss"] for t in found.trials] == [1, 2]
    assert all(t.checkpoint is not None for t in found.trials)
    found = run(tune.with_parameters(Steps, bonus=10), {"x": 4}, stop={"training_iteration": 2})
    assert found.best_result["loss"] == 12 and found.best_result["at"] == 2


def test_parameters_and_resources_come_with_the_function() -> None:
    def f(config: Any, data: Any) -> dict[str, Any]:
        return {"loss": len(data), "pid": os.getpid()}

    sized = tune.with_resources(tune.with_parameters(f, data=b"x" * 1000), {"cpu": 1})
    found = run(sized, num_samples=2)
    assert [t.last_result["loss"] for t in found.trials] == [1000, 1000]
    assert len({t.last_result["pid"] for t in found.trials}) == 2
    with pytest.raises(TypeError, match="takes no thing"):
        tune.with_parameters(f, thing=1)


def distributed(config: dict[str, Any]) -> str:
    for i in range(2):
        sgd.report(loss=config["lr"] + sgd.world_rank(), size=sgd.world_size())
        sgd.save_checkpoint(i=i)
    return "ignored"


def test_a_trial_may_be_a_distributed_run() -> None:
    trainer = sgd.Trainer(None, num_workers=2)
    found = run(trainer.to_tune_trainable(distributed), {"lr": tune.grid_search([0.1, 0.2])},
                max_concurrent_trials=1)
    trainer.shutdown()
    assert found.best_config == {"lr": 0.1} and found.best_result["size"] == 2
    assert found.best_checkpoint is not None and found.best_checkpoint.to_dict()["i"] == 1


def test_reuse_shares_workers() -> None:
    def f(config: Any) -> dict[str, Any]:
        return {"loss": 0, "pid": os.getpid()}

    found = run(f, num_samples=6, reuse_actors=True, max_concurrent_trials=1)
    assert len({t.last_result["pid"] for t in found.trials}) == 1


# --- when a trial ends ----------------------------------------------------------------------------


def endless(config: dict[str, Any]) -> None:
    while True:
        tune.report(loss=config.get("x", 0))


def test_stop_is_a_dict_or_a_function() -> None:
    found = run(endless, stop={"training_iteration": 4})
    assert found.best_result["training_iteration"] == 4
    found = run(endless, stop=lambda trial_id, result: result["training_iteration"] >= 3)
    assert found.best_result["training_iteration"] == 3


class Enough:
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return True


def test_a_stopper_may_end_everything() -> None:
    assert len(run(endless, num_samples=50, stop=Enough())) < 50


class EnoughRows:
    def __init__(self) -> None:
        self.most = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.most = max(self.most, result["training_iteration"])
        return False

    def stop_all(self) -> bool:
        return self.most >= 5


def test_no_trial_makes_further_rows_then() -> None:
    found = run(endless, num_samples=4, stop=EnoughRows(), max_concurrent_trials=4)
    assert all(t.iteration <= 5 for t in found.trials)
    assert not [t for t in found.trials if Path(t.logdir, "error.txt").exists()]


def test_a_function_that_raises_ends_the_experiment_with_it() -> None:
    def wrong(trial_id: str, result: Any) -> bool:
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        run(endless, stop=wrong)


def test_the_time_of_an_experiment_is_limited() -> None:
    began = time.monotonic()
    found = run(endless, num_samples=-1, time_budget_s=1, max_concurrent_trials=1)
    assert time.monotonic() - began < 20 and len(found) >= 1


# --- failures -------------------------------------------------------------------------------------


def some_fail(config: dict[str, Any]) -> None:
    tune.report(loss=config["x"])
    if config["x"] % 2:
        raise ValueError(f"odd {config['x']}")


def test_failed_trials_are_listed_at_the_end() -> None:
    with pytest.raises(TuneError, match=r"2 of 4 trials failed(.|\n)*ValueError: odd 1"):
        run(some_fail, {"x": tune.grid_search([0, 1, 2, 3])})
    found = run(some_fail, {"x": tune.grid_search([0, 1])}, raise_on_failed_trial=False)
    assert [t.status for t in found.trials] == ["TERMINATED", "ERROR"]
    assert "odd 1" in (found.trials[1].error_msg or "")


def fails_once(config: dict[str, Any]) -> None:
    begun = (tune.load_checkpoint() or {"i": -1})["i"] + 1
    for i in range(begun, 4):
        tune.report(loss=i, begun=begun)
        tune.save_checkpoint(i=i)
        if i == 1 and begun == 0:
            os._exit(3)


def test_a_trial_goes_on_from_its_checkpoint() -> None:
    found = run(fails_once, max_failures=1)
    assert found.trials[0].num_failures == 1 and found.trials[0].status == "TERMINATED"
    assert found.best_result["begun"] == 2 and found.best_result["loss"] == 3


def by_files(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
    begun = int(Path(checkpoint_dir, "at").read_text()) + 1 if checkpoint_dir else 0
    for i in range(begun, 3):
        with tune.checkpoint_dir(step=i) as where:
            Path(where, "at").write_text(str(i))
        tune.report(loss=i, begun=begun)
        if i == 1 and begun == 0:
            raise RuntimeError("once")


def test_checkpoints_may_be_directories() -> None:
    found = run(by_files, max_failures=1)
    assert found.best_result["begun"] == 2
    for best, at in ((found.best_checkpoint, "0"), (found.get_last_checkpoint(), "2")):
        assert best is not None and Path(best.to_directory(), "at").read_text() == at


def meet(place: Path, count: int) -> None:
    """Until all have begun: one that is at its end before another begins copies nothing."""
    (place / tune.get_trial_id()).touch()
    by = time.monotonic() + 20
    while len(os.listdir(place)) < count and time.monotonic() < by:
        time.sleep(0.002)


def with_report(config: dict[str, Any]) -> None:
    """Metrics and files in one call, as programs of generation 3 write it."""
    if "meeting" in config:
        meet(Path(config["meeting"]), 4)
    found = tune.get_checkpoint()
    begun = 1 + (int(Path(found.path, "at").read_text()) if found is not None else -1)
    for i in range(begun, 40):
        with tempfile.TemporaryDirectory() as where:
            Path(where, "at").write_text(str(i))
            tune.report({"loss": config["x"], "i": i, "begun": begun},
                        checkpoint=tune.Checkpoint.from_directory(where))


def test_a_checkpoint_is_there_when_its_report_ends_the_trial() -> None:
    found = run(with_report, {"x": 1}, stop={"training_iteration": 2})
    assert found.best_checkpoint is not None
    assert Path(found.best_checkpoint.path, "at").read_text() == "1"


def test_a_copy_has_the_files_of_the_other_trial(tmp_path: Path) -> None:
    """Of the state that was copied, which the other one drops at once."""
    pbt = tune.schedulers.PopulationBasedTraining(
        perturbation_interval=2, quantile_fraction=0.5, hyperparam_mutations={"x": [0, 1, 2, 3]})
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    found = run(with_report, {"x": tune.grid_search([0, 1, 2, 3]), "meeting": str(meeting)},
                scheduler=pbt,
                stop={"training_iteration": 20}, resources_per_trial={"cpu": 0.25},
                keep_checkpoints_num=1)
    assert {t.status for t in found.trials} == {"TERMINATED"}
    assert any(t.last_result["begun"] > 0 for t in found.trials)
    assert all(r["i"] == r["training_iteration"] - 1 for t in found.trials for r in t.rows)
    assert not [p for t in found.trials for p in Path(t.logdir).glob(".taken*")]


# --- wrong from the start -------------------------------------------------------------------------


@pytest.mark.parametrize("options, error, text", [
    ({"metric": "loss", "mode": "best"}, ValueError, "min"),
    ({"metric": "acc"}, Exception, "acc(.|\n)*loss"),
    ({"resources_per_trial": {"cpu": 100000}}, Exception, "100000"),
    ({"scheduler": "nosuch"}, ValueError, "there are"),
    ({"search_alg": tune.search.TPESearch}, TypeError, "hint"),
    ({"unknown": 1}, TypeError, "unknown"), ({"num_samples": 0}, ValueError, "at least 1"),
    ({"stop": {"loss": "ten"}}, TypeError, "must be a number"), ({"config": 3}, TypeError, "dict"),
    ({"config": {"x": tune.grid_search([1])}, "search_alg": "tpe"}, Exception, "grid"),
])
def test_mistakes_are_named(options: Any, error: Any, text: str) -> None:
    config = options.pop("config", {"x": 1})
    with pytest.raises(error, match=text):
        run(bowl, config, scheduler=options.pop("scheduler", "asha"), **options)


def test_a_wrong_trainable_is_named() -> None:
    with pytest.raises(TypeError):
        run(3)
    with pytest.raises(TypeError, match="run_experiments"):
        run([tune.Experiment("one", bowl)])
    with pytest.raises(ValueError, match="config"):
        run(lambda a, b: None)
    with pytest.raises(TypeError, match="Trainable"):
        run(Enough)


# --- callbacks ------------------------------------------------------------------------------------


class Told(tune.Callback):
    def __init__(self) -> None:
        self.said: list[str] = []

    def setup(self, **info: Any) -> None:
        self.said.append(f"setup {info['metric']}")

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.said.append(f"start {trial.trial_id}")

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any,
                        **info: Any) -> None:
        self.said.append(f"result {result['training_iteration']}")

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.said.append("complete")

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.said.append("error")

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        self.said.append(f"end {len(trials)}")


def test_callbacks_are_told_of_trials() -> None:
    told = Told()
    run(bowl, {"x": 1}, callbacks=[told])
    assert told.said == ["setup loss", "start 00000", "result 1", "result 2", "result 3",
                         "complete", "end 1"]


def test_a_callback_that_fails_ends_nothing(capfd: Any) -> None:
    class Wrong(tune.Callback):
        def on_trial_result(self, *args: Any, **info: Any) -> None:
            raise RuntimeError("ugly")

    assert len(run(bowl, {"x": 1}, callbacks=[Wrong()])) == 1
    assert "ugly" in capfd.readouterr().err


# --- what trials print ----------------------------------------------------------------------------


def talks(config: dict[str, Any]) -> None:
    print("first", config["x"])
    tune.report(loss=config["x"])
    print("last\nof all: ü", file=sys.stderr)


@pytest.mark.parametrize("reuse", [False, True])
def test_what_a_trial_prints_is_shown_with_its_name(
        reuse: bool, capfd: pytest.CaptureFixture[str]) -> None:
    tune.run(talks, {"x": tune.grid_search([0, 1])}, reuse_actors=reuse)
    shown = capfd.readouterr().out.splitlines()
    for i in range(2):
        assert [line for line in shown if line.startswith(f"(trial_{i:05}) ")] == [
            f"(trial_{i:05}) {text}" for text in (f"first {i}", "last", "of all: ü")]


@pytest.mark.parametrize("options", [{"verbose": 0}, {"log_to_file": True}])
def test_or_not_where_nobody_wants_to_see_it(
        options: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    found = tune.run(talks, {"x": 1}, **options)
    assert "first" not in capfd.readouterr().out
    log = "stdout" if "log_to_file" in options else "rank-0.log"
    assert "first 1" in Path(found.trials[0].logdir, log).read_text()


def test_a_reporter_of_the_users_and_prints(capfd: pytest.CaptureFixture[str]) -> None:
    tune.run(talks, {"x": 1}, progress_reporter=tune.CLIReporter())
    assert "(trial_00000) first 1\n" in capfd.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""What public programs for Ray Tune do, and what they are told where they are wrong."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manta import _command, tune
from manta.train import RunConfig
from manta.tune.integration.lightgbm import TuneReportCallback, TuneReportCheckpointCallback


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, **options})


# --- functions ------------------------------------------------------------------------------------


def scaled(config: dict[str, Any], factor: int = 2, offset: float = 1) -> dict[str, Any]:
    return {"loss": config["x"] * factor + offset}


def with_data(config: dict[str, Any], data: list[int]) -> dict[str, Any]:
    return {"loss": sum(data) + config["x"]}


class Model:
    def __init__(self, bias: int):
        self.bias = bias

    def train(self, config: dict[str, Any]) -> dict[str, Any]:
        return {"loss": config["x"] + self.bias}

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        return self.train(config)


@pytest.mark.parametrize("function, loss, name", [
    (scaled, 7, "scaled"), (functools.partial(scaled, factor=3), 10, "scaled"),
    (tune.with_parameters(with_data, data=[1, 2]), 6, "with_data"),
    (tune.with_resources(tune.with_parameters(with_data, data=[4]), {"cpu": 1}), 7, "with_data"),
    (Model(5).train, 8, "train"), (Model(6), 9, "Model"),
    (lambda c: {"loss": c["x"]}, 3, "lambda")])
def test_functions_of_every_kind(function: Any, loss: float, name: str) -> None:
    found = run(function, {"x": 3})
    assert found.trials[0].last_result["loss"] == loss
    assert Path(found.experiment_path).name.startswith(f"{name}_0")


def keyword(*, config: Any) -> None: ...


class NoStep(tune.Trainable):
    pass


class Old(tune.Trainable):
    def _setup(self, config: Any) -> None: ...

    def _train(self) -> None: ...


@pytest.mark.parametrize("wrong, said", [
    (with_data, r"with_data\(config, data\).*not with data\nhint: tune.with_parameters\(with_data"),
    (tune.with_resources(with_data, {"cpu": 1}), r"not with data"),
    (keyword, "not with config"), (NoStep, r"NoStep has no step\(self\)"),
    (Old, "_setup is setup, _train is step")])
def test_a_wrong_signature_shows_at_the_start(wrong: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"(?s){said}"):
        run(wrong, {"x": 1})


def takes_nothing() -> dict[str, Any]:
    return {"loss": 1}


def test_a_space_needs_a_function_that_takes_it() -> None:
    with pytest.raises(ValueError, match=r"takes_nothing\(\) takes no config, and there is one: x"):
        run(takes_nothing, {"x": tune.uniform(0, 1)})
    assert run(takes_nothing).trials[0].last_result["loss"] == 1


def reports_a_lock(config: dict[str, Any]) -> None:
    tune.report(loss=1, lock=threading.Lock())


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="config: 'b' cannot be sent to a trial: cannot pickle"):
        run(scaled, {"a": 1, "b": threading.Lock()})
    with pytest.raises(tune.TuneError, match="the metric 'lock' cannot be reported: cannot pickle"):
        run(reports_a_lock)


def test_what_had_no_effect_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    pbt = tune.schedulers.PopulationBasedTraining(
        perturbation_interval=1, hyperparam_mutations={"x": [1, 2]}, metric="loss", mode="min")
    run(scaled, {"x": 1}, num_samples=2, scheduler=pbt, stop={"acuracy": 1, "loss": 100})
    said = capfd.readouterr().err.splitlines()
    assert said[0] == ("manta: stop: trial 0 reports no 'acuracy', which ends no trial; it reports "
                       "loss")
    assert said[1].startswith("manta: no trial has saved a checkpoint, so PopulationBasedTraining")
    assert len(said) == 2


def test_what_is_sampled_from_others_takes_either_form() -> None:
    found = run(lambda c: {"loss": 1}, {
        "a": tune.grid_search([2, 3]), "b": tune.sample_from(lambda config: config["a"] + 1),
        "c": tune.sample_from(lambda spec: spec.config.a + 2),
        "d": tune.sample_from(lambda spec: spec["config"]["b"] + config_of(spec))})
    assert [t.config for t in found.trials] == [
        {"a": 2, "b": 3, "c": 4, "d": 5}, {"a": 3, "b": 4, "c": 5, "d": 7}]


def config_of(spec: Any) -> int:
    assert spec.get("none", 8) == 8
    return int(spec.get("a"))


# --- failures -------------------------------------------------------------------------------------


def fails(config: dict[str, Any]) -> None:
    if config["x"] < 5:
        raise RuntimeError("small\nvery")
    raise ValueError(f"x is {config['x']}")


def test_failed_trials_are_listed_by_what_they_say() -> None:
    with pytest.raises(tune.TuneError) as e:
        run(fails, {"x": tune.grid_search(list(range(6)))})
    lines = str(e.value).splitlines()
    assert lines[:4] == [
        "6 of 6 trials failed:",
        "  trial_00000, trial_00001, trial_00002 and 2 more: RuntimeError: small", "    very",
        "  trial_00005: ValueError: x is 5"]
    assert lines[4].startswith("hint: ") and lines[4].endswith("trial_00000/error.txt has the "
                                                              "traceback")


def test_a_failed_trial_leaves_its_traceback() -> None:
    trial = run(fails, {"x": 7}, raise_on_failed_trial=False).trials[0]
    assert trial.error_file is not None
    text = Path(trial.error_file).read_text()
    assert text.endswith("ValueError: x is 7\n") and 'raise ValueError(f"x is' in text
    assert "manta/tune" not in text and run(scaled, {"x": 1}).trials[0].error_file is None


def reports_then_fails(config: dict[str, Any]) -> None:
    tune.report({"eval": {"loss": config["x"]}})
    fails(config)


def test_the_command_says_why_trials_failed() -> None:
    found = run(reports_then_fails, {"x": tune.grid_search([7, 8])}, raise_on_failed_trial=False,
                metric="eval/loss", mode="min")
    done = subprocess.run([_command.path(), "tune", "status", found.experiment_path],
                          capture_output=True, text=True, timeout=30)
    assert "\nbest        trial 0: eval/loss 7 " in done.stdout
    assert "\nfailed      trial 0: ValueError: x is 7\n" in done.stdout, done


# --- directories ----------------------------------------------------------------------------------


def saves_a_file(config: dict[str, Any]) -> None:
    Path("model.txt").write_text(str(config["x"]))
    tune.report(loss=0, before=os.environ["TUNE_ORIG_WORKING_DIR"])


@pytest.mark.parametrize("reuse", [False, True])
def test_trials_may_run_in_their_directories(reuse: bool) -> None:
    found = run(saves_a_file, {"x": tune.grid_search([1, 2, 3])}, chdir_to_trial_dir=True,
                reuse_actors=reuse)
    assert [Path(t.logdir, "model.txt").read_text() for t in found.trials] == ["1", "2", "3"]
    assert found.trials[0].last_result["before"] == os.getcwd()


def test_programs_that_import_ray_save_into_trials(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("answer = 42\n")
    (tmp_path / "program.py").write_text("""
import os
from ray import tune

def train(config):
    import beside
    with open("./model.txt", "w") as f:
        f.write(str(config["x"] + beside.answer))
    tune.report({"eval": {"loss": config["x"]}})

if __name__ == "__main__":
    run_config = tune.RunConfig(name="my exp", storage_path=os.path.abspath("kept"), verbose=0)
    results = tune.Tuner(train, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config,
                         tune_config=tune.TuneConfig(metric="eval/loss", mode="min")).fit()
    best = results.get_best_result()
    print(open(os.path.join(best.path, "model.txt")).read())
    path = os.path.join("kept", "my exp")
    assert tune.Tuner.can_restore(path) and not tune.Tuner.can_restore("kept/other")
    print(len(tune.Tuner.restore(path, train).fit()), len(tune.ExperimentAnalysis(path).trials))
""")
    done = subprocess.run([sys.executable, "-m", "manta.compat.ray", "program.py"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)
    assert done.stdout == "43\n2 2\n" and not done.stderr, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == [
        "beside.py", "kept", "program.py"]


def test_resources_are_allocated_as_rays_example_does() -> None:
    seen = []

    def allocate(controller: Any, trial: Any, result: Any, scheduler: Any) -> None:
        base = scheduler._base_trial_resources.required_resources
        cpus = controller._resource_updater.get_num_cpus()
        seen.append((type(scheduler), base, cpus >= 1, len(controller.get_live_trials())))

    changing = tune.schedulers.ResourceChangingScheduler(
        tune.schedulers.FIFOScheduler(), resources_allocation_function=allocate)
    run(scaled, {"x": 1}, scheduler=changing, resources_per_trial={"cpu": 1})
    assert seen == [(tune.schedulers.ResourceChangingScheduler, {"CPU": 1}, True, 1)]


# --- results --------------------------------------------------------------------------------------


def nested(config: dict[str, Any]) -> None:
    for i in range(4):
        tune.report({"eval": {"loss": config["x"] - i}, "i": i})


def test_nested_metrics_have_paths() -> None:
    found = run(nested, {"x": tune.grid_search([10, 20])}, metric="eval/loss", mode="min",
                stop={"eval/loss": 19})
    assert found.best_config == {"x": 10} and found.trials[1].iteration == 1
    assert found.get_best_trial("eval/loss", "max", scope="avg").config == {"x": 20}
    assert found.trials[0].metric_analysis("eval/loss") == {"min": 7, "max": 10, "last": 7}
    stats = found.stats()
    assert 0 <= stats["timestamp"] - int(stats["start_time"]) < 60


def test_a_trainers_other_arguments_are_not_tuned() -> None:
    trainer = SimpleNamespace(as_tuned=lambda: None, run_config=RunConfig())
    with pytest.raises(ValueError, match="does not tune scaling_config"):
        tune.Tuner(trainer, param_space={"scaling_config": 1, "train_loop_config": {}}).fit()


def test_a_narrow_terminal_shows_fewer_columns() -> None:
    from manta.tune._view import View
    head = ["trial", "status", "lr", "layers", "iter", "time (s)", "loss", "acc"]
    rows = [["trial_00000", "RUNNING", "0.001", "3", "17", "1.5", "123456", "0.75"]]
    view = View("1 trial", "", head, rows, 0, 2)
    assert view.text(99, 20).splitlines()[2].split() == rows[0]
    assert view.text(46, 20).splitlines()[1:] == [
        "trial        status      lr  iter    loss", "trial_00000  RUNNING  0.001    17  123456",
        "… and 3 more columns"]


# --- libraries ------------------------------------------------------------------------------------


class Booster:
    def save_model(self, path: str) -> None:
        Path(path).write_text("saved")


def boosts(config: dict[str, Any]) -> None:
    """As lightgbm.train() calls its callbacks."""
    kind = TuneReportCheckpointCallback if config["saves"] else TuneReportCallback
    callback: Any = kind({"loss": "eval-l2"})
    for i in range(3):
        measured = [("eval", "l2", 1 / (i + 1), False), ("train", "l2", 0, False)]
        callback(SimpleNamespace(evaluation_result_list=measured, iteration=i, end_iteration=3,
                                 model=Booster()))


def test_lightgbm_reports_to_its_trial() -> None:
    found = run(boosts, {"saves": tune.grid_search([True, False])}, metric="loss", mode="min")
    assert [t.iteration for t in found.trials] == [3, 3]
    assert found.trials[1].checkpoint is None
    kept = found.trials[0].checkpoint
    assert kept is not None and Path(kept.to_directory(), "model.txt").read_text() == "saved"


def test_a_trainer_inside_reports_to_its_trial() -> None:
    found = run(trains_inside, {"x": 3}, metric="loss", mode="min")
    assert [r["loss"] for r in found.trials[0].rows] == [3, 4]


def trains_inside(config: dict[str, Any]) -> None:
    from manta.train import DataParallelTrainer, ScalingConfig, report
    from manta.tune.integration.ray_train import TuneReportCallback

    def loop(config: dict[str, Any]) -> None:
        for i in range(2):
            report({"loss": config["x"] + i})
    DataParallelTrainer(loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2),
                        run_config=RunConfig(callbacks=[TuneReportCallback()])).fit()

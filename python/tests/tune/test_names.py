# SPDX-License-Identifier: Apache-2.0
"""What programs for Ray Tune use besides tune.run itself: stoppers, reporters, callbacks, names."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from manta import _command, tune
from manta.tune import logger, stopper
from manta.tune.result import SHOULD_CHECKPOINT


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "metric": "loss", "mode": "min", **options})


def falling(config: dict[str, Any]) -> None:
    for i in range(20):
        tune.report(loss=max(0, config.get("x", 4) - i), i=i)


# --- stoppers -------------------------------------------------------------------------------------


class Third(stopper.Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["training_iteration"] == 3)


@pytest.mark.parametrize("stop, reports", [
    (stopper.MaximumIterationStopper(5), 5), (Third(), 3), (stopper.NoopStopper(), 20),
    (lambda trial_id, result: result["i"] == 6, 7), ({"i": 8, "loss": 100}, 9),
    (stopper.TrialPlateauStopper("loss", std=0, num_results=3, grace_period=2), 7),
    (stopper.TrialPlateauStopper("loss", std=10, num_results=2, metric_threshold=1, mode="min"), 4),
    ([stopper.MaximumIterationStopper(9), Third()], 3),
    (stopper.CombinedStopper(Third(), stopper.NoopStopper()), 3),
    ({"time_total_s": 0}, 1)])
def test_stoppers_end_trials(stop: Any, reports: int) -> None:
    assert run(falling, stop=stop).trials[0].iteration == reports


@pytest.mark.parametrize("stop", [
    stopper.TimeoutStopper(timedelta(0)), stopper.ExperimentPlateauStopper("loss", top=2)])
def test_stoppers_end_everything(stop: Any) -> None:
    assert len(run(lambda c: {"loss": 0}, num_samples=60, stop=stop)) < 60


def test_schedulers_take_seconds_for_time() -> None:
    asha = tune.schedulers.ASHAScheduler(time_attr="time_total_s", grace_period=1e-9,
                                         max_t=1e-9)
    found = run(falling, num_samples=2, scheduler=asha)
    assert [t.iteration for t in found.trials] == [1, 1]  # with the first report it is over
    assert all(t.last_result["time_total_s"] > 0 for t in found.trials)


def test_what_is_no_stopper_is_said() -> None:
    with pytest.raises(TypeError, match=r"hint: stop=Third\(…\)"):
        run(falling, stop=Third)
    with pytest.raises(TypeError, match="a dict, a Stopper or a function"):
        run(falling, stop=3)
    with pytest.raises(ValueError, match="mode"):
        stopper.TrialPlateauStopper("loss", metric_threshold=1)


# --- reporters ------------------------------------------------------------------------------------


def test_a_reporter_prints_the_columns_that_are_asked_for(capsys: Any) -> None:
    shown = tune.CLIReporter(metric_columns={"loss": "final loss"}, parameter_columns=["x"],
                             max_report_frequency=0, sort_by_metric=True)
    shown.add_metric_column("i")
    run(falling, {"x": tune.grid_search([22, 30]), "y": 1}, progress_reporter=shown,
        trial_name_creator=lambda t: f"try{t.trial_id}")
    last = capsys.readouterr().out.strip().split("\n\n")[-1].splitlines()
    assert last[0].startswith("2 trials (2 finished)")
    assert last[1] == "best loss 3 (trial 0): x=22, y=1"
    assert last[2].split() == ["trial", "status", "x", "iter", "time", "(s)", "final", "loss", "i"]
    assert [line.split()[0] for line in last[3:]] == ["try00000", "try00001"]
    assert last[3].split()[-2:] == ["3", "19"]


class Counted(tune.ProgressReporter):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def should_report(self, trials: Any, done: bool = False) -> bool:
        return done or len(trials) > 0

    def report(self, trials: Any, done: bool, *sys_info: Any) -> None:
        self.seen.append((done, [t.status for t in trials]))


def test_a_reporter_may_be_the_users() -> None:
    mine = Counted()
    run(lambda c: {"loss": 1}, num_samples=2, progress_reporter=mine)
    assert mine.seen[-1] == (True, [tune.Trial.TERMINATED] * 2) and len(mine.seen) > 2
    with pytest.raises(TypeError, match=r"hint: progress_reporter=Counted\(…\)"):
        run(falling, progress_reporter=Counted)


def test_the_live_table_is_redrawn_and_cut_to_the_terminal(monkeypatch: Any) -> None:
    from manta.tune import _table, _view
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("TERM", "xterm")
    found = run(falling, {"x": tune.grid_search(list(range(12)))})
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    progress = _view.Progress(found._tune, "loss", "min", ["x"])
    table = _table.Table(progress, 1, out)
    for i in range(12):
        progress.take(_view.ENDED, i)
    table._show()
    first = out.getvalue()
    table._show()
    assert first.startswith("12 trials (12 finished)") and "… and 9 more trials" in first
    lines = first.splitlines()
    assert len(lines) < 8 and all(len(line) < 50 for line in lines)
    assert out.getvalue()[len(first):].startswith(f"\x1b[{len(lines)}F\x1b[J12 trials")
    assert "<th>trial</th>" in progress.view(_view.Columns()).html()


# --- callbacks ------------------------------------------------------------------------------------


class Logged(logger.LoggerCallback):
    def __init__(self) -> None:
        self.said: list[str] = []

    def log_trial_start(self, trial: Any) -> None:
        self.said.append("start")

    def log_trial_restore(self, trial: Any) -> None:
        self.said.append("restore")

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        assert result["time_total_s"] > 0
        self.said.append(f"result {iteration}")

    def log_trial_save(self, trial: Any) -> None:
        self.said.append("save")

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self.said.append(f"end {failed}")

    def on_trial_recover(self, *args: Any, **info: Any) -> None:
        self.said.append("recover")


def fails_once(config: dict[str, Any]) -> None:
    for i in range((tune.load_checkpoint() or {"i": 0})["i"], 2):
        tune.report(loss=i)
        tune.save_checkpoint(i=i + 1)
        if i == 0:
            raise RuntimeError("once")


def test_loggers_are_told_of_everything() -> None:
    told = Logged()
    run(fails_once, callbacks=[told], max_failures=1)
    assert told.said == ["start", "result 1", "save", "recover", "restore", "result 2", "save",
                         "end False"]


# --- what a trial knows ---------------------------------------------------------------------------


def facts(config: dict[str, Any]) -> dict[str, Any]:
    from manta import train
    print("to the file")
    context = train.get_context()
    resources: Any = tune.get_trial_resources()
    return {"loss": 0, "id": tune.get_trial_id(), "name": tune.get_trial_name(),
            "same": context.get_trial_id(), "experiment": context.get_experiment_name(),
            "resources": resources.required_resources, "in": tune.is_session_enabled()}


def test_a_trial_knows_what_it_is() -> None:
    asked = tune.PlacementGroupFactory([{"CPU": 1}, {"cpu": 0.5}])
    assert asked.head_cpus == 1 and asked == {"CPU": 1.5}
    found = run(tune.with_resources(facts, asked), log_to_file=True, name="known")
    row, where = found.trials[0].last_result, Path(found.trials[0].logdir)
    assert (row["id"], row["same"], row["name"]) == ("00000", "00000", where.name)
    assert row["experiment"] == Path(found.experiment_path).name and row["in"]
    assert row["resources"] == {"CPU": 1.5} and not tune.is_session_enabled()
    assert (where / "stdout").read_text() == "to the file\n"


class Kept(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.x, self.made = config["x"], 1

    def step(self) -> dict[str, Any]:
        return {"loss": self.x, "made": self.made, "pid": os.getpid(), "done": True,
                "id": self.trial_id, SHOULD_CHECKPOINT: self.x == 2}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"x": self.x}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.x, self.made = new_config["x"], self.made + 1
        return True

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        return tune.PlacementGroupFactory([{"CPU": 2}])


def test_a_class_may_take_another_config() -> None:
    found = run(Kept, {"x": tune.grid_search([1, 2, 3])}, reuse_actors=True,
                max_concurrent_trials=1)
    rows = [t.last_result for t in found.trials]
    assert [(r["loss"], r["made"], r["id"]) for r in rows] == [
        (1, 1, "00000"), (2, 2, "00001"), (3, 3, "00002")]
    assert len({r["pid"] for r in rows}) == 1
    assert [t.checkpoint is not None for t in found.trials] == [False, True, False]


# --- experiments and their results ----------------------------------------------------------------


def test_experiments_may_be_objects_and_trainables_names() -> None:
    tune.register_trainable("falling", falling)
    named = tune.Experiment("first", "falling", stop={"i": 1}, config={"x": 3}, num_samples=2)
    trials = tune.run_experiments(named, verbose=0)
    assert [t.last_result["loss"] for t in trials] == [2, 2]
    assert "first" in Path(trials[0].logdir).parent.name
    trials = tune.run_experiments({"second": {"run": falling, "stop": {"i": 0}}}, verbose=0)
    assert len(trials) == 1
    with pytest.raises(ValueError, match="there are: falling"):
        run("rising")


def test_the_best_is_found_by_any_scope() -> None:
    def f(config: dict[str, Any]) -> None:
        for i, loss in enumerate(config["losses"]):
            tune.report(loss=loss)
            tune.save_checkpoint(i=i)

    found = run(f, {"losses": tune.grid_search([[9, 0, 5], [4, 4, 4], [9, 3.5, 3.6]])})
    assert [found.get_best_trial(scope=s).number  # type: ignore[union-attr]
            for s in ("last", "all", "avg", "last-5-avg")] == [2, 0, 1, 1]
    best, last = found.get_best_checkpoint(), found.get_last_checkpoint()
    assert best and best.to_dict()["i"] in (1, 2) and last and last.to_dict()["i"] == 2
    assert [v for _, v in found.get_trial_checkpoints_paths(found.trials[0])][-1] == 5
    with pytest.raises(ValueError, match="scope"):
        found.get_best_trial(scope="any")


@pytest.mark.parametrize("mode, best", [("min", 1), ("max", 2)])
def test_what_is_not_finite_is_not_the_best(mode: str, best: int) -> None:
    inf = math.inf
    found = run(lambda config: {"loss": config["x"]}, mode=mode,
                config={"x": tune.grid_search([-inf, 1, 2, inf, math.nan])})
    assert found.best_config == {"x": best}
    assert {found.get_best_config("loss", mode, s)["x"] for s in ("last", "all")} == {best}
    assert found.trials[0].best_result["loss"] == -inf  # it has no other


def test_a_checkpoint_that_diverged_is_not_the_best() -> None:
    def f(config: dict[str, Any]) -> None:
        for i, loss in enumerate((3.0, 2.0, -math.inf), 1):
            tune.report(eval={"loss": loss})
            tune.save_checkpoint(loss=loss)
            while not Path(tune.get_trial_dir(), "checkpoints", f"{i:06}").exists():
                time.sleep(0.01)

    found = run(f, metric="eval/loss", keep_checkpoints_num=5)
    best = found.get_best_checkpoint()
    assert best and best.to_dict()["loss"] == 2
    values = [v for _, v in found.get_trial_checkpoints_paths(found.trials[0])]
    assert sorted(values) == [-math.inf, 2, 3]


def test_the_command_lists_what_was_stopped_and_nested_metrics() -> None:
    def f(config: dict[str, Any]) -> None:
        tune.report(eval={"loss": 2.5})

    found = run(f, metric="eval/loss", num_samples=60, stop=stopper.TimeoutStopper(timedelta(0)))
    assert len(found) < 60
    where = Path(found.experiment_path)
    done = subprocess.run([_command.path(), "ls", "--json", where.parent], check=True,
                          capture_output=True, timeout=50)
    (told,) = (x for x in json.loads(done.stdout) if x["name"] == where.name)
    assert told["state"] == "finished" and told["best"]["value"] == 2.5


def test_other_searchers_of_ray_are_named() -> None:
    with pytest.raises(ImportError, match="TPESearch"):
        __import__("manta.tune.search.hyperopt")
    with pytest.raises(AttributeError, match="not in this version"):
        tune.search.HyperOptSearch  # type: ignore[attr-defined]


# --- arguments and methods that programs for Ray have ---------------------------------------------


def test_more_arguments_of_ray_are_taken(tmp_path: Path) -> None:
    pbt = tune.schedulers.PopulationBasedTraining(
        "training_iteration", "loss", "min", 2, 0, {"x": [1, 2]}, 0.25, 0.25, (1.2, 0.8),
        None, True)
    assert pbt.metric == "loss"
    with pytest.warns(UserWarning, match="PB2 ignores synch: trials do not wait"):
        tune.schedulers.PB2(hyperparam_bounds={"x": [0, 1]}, synch=True)
    with pytest.warns(UserWarning, match="every live trial gets the same part"):
        tune.schedulers.DistributeResources(add_bundles=True)
    assert tune.schedulers.DistributeResources(reserve_resources={"CPU": 1}).reserved == {"CPU": 1}
    for refused in (lambda: tune.RunConfig(storage_filesystem=io.BytesIO()),
                    lambda: tune.Tuner.can_restore(tmp_path, storage_filesystem=io.BytesIO())):
        with pytest.raises(TypeError, match="not through BytesIO"):
            refused()
    assert tune.SyncConfig(sync_on_checkpoint=False, sync_to_driver=False).upload_dir is None


def test_more_methods_of_ray_are_there(tmp_path: Path) -> None:
    def saves(config: dict[str, Any]) -> None:
        with tune.checkpoint_dir(step=0) as path:
            Path(path, "state").touch()
        tune.report(loss=config["x"])

    found = run(saves, {"x": 3})
    path = found.get_best_checkpoint(found.best_trial, return_path=True)
    assert os.path.exists(os.path.join(path, "state"))
    assert found.trials[0].is_finished() and found.trials[0].experiment_tag == "0_x=3"
    found.set_filetype("json")

    search = tune.search.Searcher("loss", "min")
    search.save_to_dir(str(tmp_path))
    other = tune.search.Searcher()
    other.restore_from_dir(str(tmp_path))
    assert (other.metric, other.set_max_concurrency(2)) == ("loss", False)
    with pytest.raises(RuntimeError, match="no state of a searcher"):
        other.restore_from_dir(str(tmp_path / "nothing"))

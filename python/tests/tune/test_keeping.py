# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints of a trial stay on disk: by age, and by what was reported with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from manta import tune
from manta.tune import Checkpoint, CheckpointConfig
from manta.tune.schedulers import ASHAScheduler
from manta.tune.stopper import Stopper

SCORES = [3, 9, 1, 9.5, 4, 0.5, 5]


def run(trainable: Any, **options: Any) -> list[int]:
    """Numbers of the reports whose checkpoints are there at the end."""
    found = tune.run(trainable, verbose=0, **options)
    return [row["i"] for _, row in found.trials[0].checkpoints]


def passed(config: dict[str, Any]) -> None:
    for i, score in enumerate(SCORES):
        tune.report({"score": score, "i": i}, checkpoint=Checkpoint.from_dict({"i": i}))


def in_directories(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
    for i, score in enumerate(SCORES):
        with tune.checkpoint_dir(step=i) as path:
            with open(os.path.join(path, "i"), "w") as f:
                f.write(str(i))
        tune.report(score=score, i=i)


class Steps(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"score": SCORES[self.iteration], "i": self.iteration,
                "done": self.iteration == len(SCORES) - 1}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"at": self.iteration}

    def load_checkpoint(self, checkpoint: Any) -> None:
        assert checkpoint["at"] == self.iteration or self.iteration == 0


@pytest.mark.parametrize("trainable", [passed, in_directories, Steps])
def test_the_best_are_kept_and_the_newest(trainable: Any) -> None:
    often = {"checkpoint_freq": 1} if trainable is Steps else {}
    assert run(trainable, keep_checkpoints_num=2, checkpoint_score_attr="score",
               **often) == [1, 3, 6]


def test_a_class_continues_from_the_checkpoint_of_a_trial() -> None:
    found = tune.run(Steps, verbose=0, checkpoint_freq=1, metric="score", mode="max")
    again = Steps({})
    again.restore(found.best_checkpoint)
    assert again.iteration == 4  # the best one


class Exported(Steps):
    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        path = Path(export_dir, "model")
        path.write_text(f"{export_formats} {self.iteration}")
        return {"model": str(path)}


@pytest.mark.parametrize("options", [
    {"stop": {"training_iteration": 3}}, {"stop": lambda trial, row: row["i"] == 2},
    {"stop": {"training_iteration": 3}, "reuse_actors": True},
    {"scheduler": ASHAScheduler(max_t=3, grace_period=3), "metric": "score", "mode": "min"}])
def test_a_class_that_is_stopped_comes_to_its_end(options: dict[str, Any]) -> None:
    """However it is stopped: it saves and exports, after its last report."""
    found = tune.run(Exported, {"x": tune.grid_search([1, 2, 3])}, verbose=0,
                     checkpoint_at_end=True, export_formats=["model"], **options)
    for t in found.trials:
        assert t.status == "TERMINATED" and t.last_result["i"] == 2
        assert [row["i"] for _, row in t.checkpoints] == [2]
        assert Path(t.logdir, "model").read_text() == "['model'] 3"
        assert not list(Path(t.logdir).glob(".checkpoint-*"))


def test_one_that_ends_by_itself_does_the_same() -> None:
    found = tune.run(Exported, verbose=0, checkpoint_at_end=True, export_formats=["model"])
    assert [row["i"] for _, row in found.trials[0].checkpoints] == [6]
    assert Path(found.trials[0].logdir, "model").read_text() == "['model'] 7"


def test_formats_that_there_are() -> None:
    with pytest.raises(ValueError, match="a list of checkpoint, h5, model, onnx, not 'model'"):
        tune.run(Exported, export_formats="model")


class Enough(Stopper):
    """Of the whole experiment."""
    seen = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen += 1
        return False

    def stop_all(self) -> bool:
        return self.seen >= 3


def test_so_does_one_that_the_end_of_the_experiment_stops() -> None:
    found = tune.run(Exported, verbose=0, stop=Enough(), checkpoint_at_end=True,
                     export_formats=["model"])
    last = found.trials[0].last_result["i"]
    assert last < 6
    assert [row["i"] for _, row in found.trials[0].checkpoints] == [last]
    assert Path(found.trials[0].logdir, "model").read_text() == f"['model'] {last + 1}"


def named(config: dict[str, Any]) -> None:
    tune.report({"i": -1}, checkpoint=Checkpoint.from_dict({}))  # has no score yet
    for i, score in enumerate(SCORES):
        tune.report({"eval": {"score": score}, "i": i}, checkpoint=Checkpoint.from_dict({"i": i}))


def test_a_class_may_begin_from_a_checkpoint(tmp_path: Path) -> None:
    found = tune.run(Steps, verbose=0, checkpoint_freq=1, metric="score", mode="max")
    assert found.best_checkpoint is not None
    path = found.best_checkpoint.path
    again = tune.run(Steps, verbose=0, restore=path)
    assert [row["i"] for row in again.trials[0].rows] == [4, 5, 6]
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        run(Steps, restore=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="a function loads one itself"):
        run(passed, restore=path)


@pytest.mark.parametrize("mode, best", [("max", 3), ("min", 5)])
def test_without_a_word_the_best_and_the_newest_are_kept(mode: str, best: int) -> None:
    assert run(passed, metric="score", mode=mode) == [best, 6]
    assert run(in_directories, metric="score", mode=mode) == [best, 6]
    found = tune.run(named, verbose=0, metric="eval/score", mode=mode)
    assert [row["i"] for _, row in found.trials[0].checkpoints] == [best, 6]
    assert found.best_checkpoint.to_dict()["i"] == best
    assert run(passed) == [6]


def test_nothing_else_is_left_of_a_directory() -> None:
    found = tune.run(in_directories, verbose=0)
    assert not list(Path(found.trials[0].logdir).glob(".checkpoint-*"))


def test_the_least_are_kept() -> None:
    assert run(passed, keep_checkpoints_num=2, checkpoint_score_attr="min-score") == [2, 5, 6]
    assert run(in_directories, checkpoint_score_attr="min-score") == [5, 6]


def test_a_config_says_the_same() -> None:
    kept = CheckpointConfig(2, checkpoint_score_attribute="score", checkpoint_score_order="min")
    tuner = tune.Tuner(in_directories, run_config=tune.RunConfig(checkpoint_config=kept, verbose=0))
    result = tuner.fit()[0]
    assert [row["i"] for _, row in result.best_checkpoints] == [2, 5, 6]
    assert run(in_directories, checkpoint_config=CheckpointConfig()) == list(range(7))


def test_what_rises_keeps_the_newest() -> None:
    assert run(in_directories, keep_checkpoints_num=3,
               checkpoint_score_attr="training_iteration") == [4, 5, 6]


@pytest.mark.parametrize("options, said", [
    ({"keep_checkpoints_num": 0}, "keep_checkpoints_num must be an int >= 1"),
    ({"checkpoint_score_attr": "min-training_iteration"}, "are the oldest"),
    ({"keep_checkpoints_num": 1, "checkpoint_config": CheckpointConfig(2)}, "both say"),
])
def test_what_makes_no_sense_is_said_at_the_start(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tune.run(passed, verbose=0, **options)


def test_a_score_that_no_trial_reports_is_named() -> None:
    with pytest.raises(tune.TuneError, match='kept by the score "accuracy"'):
        run(passed, keep_checkpoints_num=1, checkpoint_score_attr="accuracy")

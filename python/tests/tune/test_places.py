# SPDX-License-Identifier: Apache-2.0
"""Where experiments and trials are: directories, their names, and where trials work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from manta import tune


def where(config: dict[str, Any]) -> dict[str, Any]:
    return {"cwd": os.getcwd(), "original": os.environ["TUNE_ORIG_WORKING_DIR"],
            "dir": tune.get_trial_dir(), "id": tune.get_trial_id(), "name": tune.get_trial_name()}


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, **options})


# --- where trials work ----------------------------------------------------------------------------


@pytest.mark.parametrize("asked, said, own", [
    (None, None, False), (None, "1", True), (True, None, True), (False, "1", False)])
@pytest.mark.parametrize("reuse", [False, True])
def test_trials_work_where_they_are_told_to(asked: bool | None, said: str | None, own: bool,
                                            reuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if said is not None:
        monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", said)
    found = run(where, num_samples=2, chdir_to_trial_dir=asked, reuse_actors=reuse,
                max_concurrent_trials=1)
    for t in found.trials:
        row = t.last_result
        assert row["dir"] == t.logdir and row["original"] == os.getcwd()
        assert row["cwd"] == (t.logdir if own else os.getcwd())


# --- where experiments are written ----------------------------------------------------------------


def test_upload_dir_is_where_it_is_written(tmp_path: Path) -> None:
    for given in (str(tmp_path / "a"), f"file://{tmp_path}/b"):
        found = run(where, sync_config=tune.SyncConfig(upload_dir=given))
        assert Path(found.experiment_path).parent == Path(given.removeprefix("file://"))


@pytest.mark.parametrize("options, said", [
    ({"storage_path": "s3://bucket/x"}, "storage_path: an experiment is written to a directory"),
    ({"sync_config": tune.SyncConfig(upload_dir="gs://bucket/x")}, "upload_dir")])
def test_a_store_is_no_directory(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(where, **options)


def test_what_is_ignored_is_told_with_what_is_there_instead() -> None:
    with pytest.warns(UserWarning, match="sync_to_driver: an experiment is written where"):
        run(where, sync_to_driver=True, export_formats=None)
    with pytest.raises(TypeError, match="storage_path"):
        run(where, storage_pth="x")


# --- names of directories -------------------------------------------------------------------------


def test_directories_have_the_names_that_they_are_given() -> None:
    def name(trial: Any) -> str:
        return f"{trial.trainable_name}-x={trial.config['x']}"

    found = run(where, {"x": tune.grid_search([1, 2])}, trial_dirname_creator=name,
                callbacks=[tune.logger.JsonLoggerCallback()])
    assert [Path(t.logdir).name for t in found.trials] == ["where-x=1", "where-x=2"]
    for t in tune.ExperimentAnalysis(found.experiment_path).trials:
        row = t.last_result
        assert (row["dir"], row["name"], row["id"]) == (t.logdir, Path(t.logdir).name, t.trial_id)
        assert list(Path(t.logdir).glob("result*.json"))
    assert not list(Path(found.experiment_path).glob("trial_*"))


def test_a_named_trial_goes_on_in_its_directory() -> None:
    def fails(config: dict[str, Any]) -> None:
        begun = (tune.load_checkpoint() or {"i": -1})["i"] + 1
        for i in range(begun, 3):
            tune.report(i=i, begun=begun, id=tune.get_trial_id())
            tune.save_checkpoint(i=i)
            if begun == 0 and i == 1:
                os._exit(1)

    config = tune.TuneConfig(trial_dirname_creator=lambda trial: f"named {trial.trial_id}")
    tuner = tune.Tuner(fails, tune_config=config, run_config=tune.RunConfig(
        verbose=0, failure_config=tune.FailureConfig(max_failures=1)))
    result = tuner.fit()[0]
    assert Path(result.path).name == "named 00000"
    assert (result.metrics["begun"], result.metrics["id"]) == (2, "00000")


@pytest.mark.parametrize("name, said", [
    ("a/b", "without '/'"), ("..", "no '.'"), ("", "1 to 200 bytes"),
    ("x" * 201, "longer than 200"), ("experiment", "cannot be the directory"),
    ("same", "another one"), ("trial_00005", "another"),
    (5, "must give a name"), (None, "must give a name")])
def test_what_is_no_name_is_said_before_the_trial_begins(name: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        run(where, num_samples=2, trial_dirname_creator=lambda trial: name)

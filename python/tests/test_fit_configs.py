# SPDX-License-Identifier: Apache-2.0
"""The configs of generation 3: what they mean, and what is said of wrong ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import pytest

import manta
from manta import air, train
from manta.air import (Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig,
                       ScalingConfig, SyncConfig, session)
from manta.train import BackendConfig, DataParallelTrainer, SGDCallback


def nothing() -> None:
    pass


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: ScalingConfig(num_workers=0), r"ValueError: num_workers must be 1 to"),
    (lambda: ScalingConfig(num_workers="2"), r"TypeError: num_workers must be an int"),
    (lambda: ScalingConfig(workers=2), r"TypeError: .*'workers'\nhint: it is num_workers"),
    (lambda: ScalingConfig(resources_per_worker={"cpu": 1}), r"hint: it is 'CPU'"),
    (lambda: ScalingConfig(resources_per_worker={"GPU": 1}), r"hint: use_gpu=True"),
    (lambda: ScalingConfig(use_gpu=1), r"TypeError: use_gpu must be True or False"),
    (lambda: ScalingConfig(trainer_resources=2), r"a dict such as \{'CPU': 1\}"),
    (lambda: ScalingConfig(placement_strategy="pack"), r"one of PACK, SPREAD"),
    (lambda: FailureConfig(max_failures=-2), r"ValueError: max_failures must be an int >= -1"),
    (lambda: FailureConfig(max_failures=2, fail_fast=True), r"contradict each other\nhint:"),
    (lambda: FailureConfig(fail_fast=3), r"fail_fast must be True or False"),
    (lambda: FailureConfig(max_failure=2), r"hint: it is max_failures"),
    (lambda: CheckpointConfig(num_to_keep=0), r"ValueError: num_to_keep must be an int >= 1"),
    (lambda: CheckpointConfig(checkpoint_score_order="up"), r"must be 'max' or 'min'"),
    (lambda: CheckpointConfig(checkpoint_frequency=-1), r"checkpoint_frequency must be an int >="),
    (lambda: RunConfig(name="a/b"), r"ValueError: name must be .*\nhint: RunConfig\(name="),
    (lambda: RunConfig(storage_path="a", local_dir="b"), r"are the same: give one"),
    (lambda: RunConfig(storage_path=3), r"TypeError: storage_path must be a path"),
    (lambda: RunConfig(failure_config={"max_failures": 3}), r"FailureConfig\(\*\*\{'max_fail"),
    (lambda: RunConfig(checkpoint_config=3), r"hint: checkpoint_config=CheckpointConfig"),
    (lambda: RunConfig(callbacks=[print]), r"TypeError: .*no handle_result"),
    (lambda: RunConfig(stop=3), r"TypeError: stop must be .*\nhint: stop=\{"),
    (lambda: RunConfig(stop={"loss": "low"}), r"stop\['loss'\] must be the least value"),
    (lambda: RunConfig(verbose="no"), r"TypeError: verbose must be an int"),
    (lambda: DataParallelTrainer(3), r"TypeError: the train function must be callable"),
    (lambda: DataParallelTrainer(lambda a, b: 1), r"ValueError: .*takes 2 arguments"),
    (lambda: DataParallelTrainer(nothing, datasets={"train": [1]}),
     r"TypeError: datasets\['train'\]\[0\] must be a Dataset"),
    (lambda: DataParallelTrainer(nothing, scaling_config={"num_workers": 2}),
     r"hint: ScalingConfig\(\*\*\{'num_workers': 2\}\)"),
    (lambda: DataParallelTrainer(nothing, resume_from_checkpoint="path"),
     r"TypeError: resume_from_checkpoint .*\nhint: Checkpoint\(path\)"),
    (lambda: DataParallelTrainer(nothing, backend_config=3), r"must be a BackendConfig, not 3"),
    (lambda: DataParallelTrainer(nothing, num_workers=2), r"has no argument 'num_workers'"),
]


@pytest.mark.parametrize("call, answer", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_says_what_to_write(call: Callable[[], Any], answer: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    said = f"{type(caught.value).__name__}: {caught.value}"
    assert re.search(answer, said), said


def test_scaling() -> None:
    assert ScalingConfig().num_workers == 1 and ScalingConfig().total_resources == {"CPU": 1}
    c = ScalingConfig(num_workers=3, use_gpu=True, resources_per_worker={"CPU": 2, "disk": 1},
                      trainer_resources={"CPU": 0})
    assert (c.num_cpus_per_worker, c.num_gpus_per_worker) == (2, 1)
    assert c.additional_resources_per_worker == {"disk": 1}
    assert c.total_resources == {"CPU": 6, "GPU": 3, "disk": 3}
    assert ScalingConfig(num_workers=(1, 4)).total_resources == {"CPU": 4}
    with pytest.warns(UserWarning, match="ignores placement_strategy"):
        ScalingConfig(placement_strategy="SPREAD")


def test_every_front_has_the_same(tmp_path: Path) -> None:
    for name in ("Checkpoint", "CheckpointConfig", "FailureConfig", "Result", "RunConfig",
                 "ScalingConfig", "SyncConfig"):
        assert getattr(air, name) is getattr(train, name) is getattr(manta, name)
    from manta.air.checkpoint import Checkpoint as from_checkpoint
    from manta.air.config import RunConfig as from_config
    from manta.air.result import Result as from_result
    from manta.train.data_parallel_trainer import DataParallelTrainer as parallel
    assert (from_checkpoint, from_config, from_result) == (Checkpoint, RunConfig, Result)
    assert parallel is DataParallelTrainer and manta.air.session is session
    assert {"session", "config"} <= set(dir(air))
    with pytest.raises(AttributeError, match="hint: it has 'RunConfig'"):
        air.RunConfg
    config = RunConfig(local_dir=tmp_path, sync_config=SyncConfig(), log_to_file=True,
                       progress_reporter=object())
    assert config.storage_path == tmp_path == config.directory()
    assert RunConfig(storage_path=f"file://{tmp_path}/a%20b").directory() == tmp_path / "a b"


def test_where_an_experiment_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANTA_RESULTS", str(tmp_path))
    result = DataParallelTrainer(nothing, run_config=RunConfig(verbose=0)).fit()
    experiment = result.log_dir.parent
    assert experiment.parent == tmp_path and experiment.name.startswith("DataParallelTrainer_20")
    assert result.metrics == {} and result.checkpoint is None and result.best_checkpoints == []


def test_callbacks_are_told(tmp_path: Path) -> None:
    class Told(SGDCallback):
        def __init__(self) -> None:
            self.said: list[Any] = []

        def start_training(self, logdir: str, config: Any, num_workers: int, **info: Any) -> None:
            self.said.append((config, num_workers))

        def handle_result(self, results: list[Any], **info: Any) -> None:
            self.said.append([r["rank"] for r in results])

        def finish_training(self, error: bool = False, **info: Any) -> None:
            self.said.append(error)

    def loop(config: dict[str, Any]) -> None:
        session.report({"rank": session.get_world_rank()})
        if config["fails"]:
            raise ValueError

    for fails in (False, True):
        told = Told()
        trainer = DataParallelTrainer(
            loop, train_loop_config={"fails": fails}, scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(callbacks=[told], storage_path=tmp_path, verbose=0))
        if fails:
            with pytest.raises(ValueError):
                trainer.fit()
        else:
            trainer.fit()
        assert told.said[0] == ({"fails": fails}, 2) and told.said[-1] is fails
        assert fails or told.said[1] == [0, 1]


def test_which_checkpoints_are_saved(tmp_path: Path) -> None:
    def loop() -> None:
        for step in range(1, 8):
            session.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))

    result = DataParallelTrainer(loop, run_config=RunConfig(
        storage_path=tmp_path, verbose=0,
        checkpoint_config=CheckpointConfig(checkpoint_frequency=3))).fit()
    assert result.checkpoint is not None
    found = result.checkpoint.to_dict()
    assert (found["step"], found["_current_checkpoint_id"]) == (6, 1)
    assert result.metrics["step"] == 7


def test_preprocessor_and_metadata_are_in_checkpoints(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        assert train.get_context().get_metadata() == {"by": "me"}
        saved = Checkpoint(config["dir"]) if config["dir"] else Checkpoint.from_dict({"x": 1})
        session.report({}, checkpoint=saved)

    (tmp_path / "own").mkdir()
    for directory in (None, str(tmp_path / "own")):
        result = DataParallelTrainer(
            loop, train_loop_config={"dir": directory}, preprocessor=[4], metadata={"by": "me"},
            run_config=RunConfig(storage_path=tmp_path, verbose=0)).fit()
        assert result.checkpoint is not None
        assert result.checkpoint.get_metadata() == {"by": "me"}
        assert directory or result.checkpoint.get_preprocessor() == [4]


def test_a_backend_of_the_users_own(tmp_path: Path) -> None:
    class Own(BackendConfig):
        pass
    DataParallelTrainer(nothing, backend_config=Own(),
                        run_config=RunConfig(storage_path=tmp_path, verbose=0)).fit()


def test_a_dataframe_is_made_by_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = ModuleType("pandas")
    fake.DataFrame = list  # type: ignore[attr-defined]
    result = Result({"loss": 1}, rows=[{"loss": 2}, {"loss": 1}])
    monkeypatch.setitem(sys.modules, "pandas", fake)
    assert result.metrics_dataframe == [{"loss": 2}, {"loss": 1}]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="hint: pip install pandas; Result.rows"):
        result.metrics_dataframe


def test_a_result_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hint: Result.path"):
        Result.from_path(tmp_path)
    with pytest.raises(RuntimeError, match="no checkpoint on disk has the metric 'loss'"):
        Result().get_best_checkpoint("loss", "min")
    with pytest.raises(ValueError, match="'max' or 'min'"):
        Result().get_best_checkpoint("loss", "best")

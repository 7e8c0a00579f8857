# SPDX-License-Identifier: Apache-2.0
"""What a train function of generation 3 calls, inside of a worker and outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manta import data, sgd, train
from manta._front import session as plain
from manta.air import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig, session
from manta.train import DataParallelTrainer, SessionError, Trainer


def fit(loop: Any, workers: int = 1, **arguments: Any) -> Any:
    return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=workers),
                               run_config=RunConfig("here", verbose=0), **arguments).fit()


def test_who_am_i() -> None:
    def loop() -> None:
        context = train.get_context()
        names = ("world_size", "world_rank", "local_rank", "local_world_size", "node_rank",
                 "trial_id", "trial_name", "trial_dir", "trial_resources", "experiment_name")
        said = {name: getattr(session, f"get_{name}")() for name in names}
        assert said == {name: getattr(context, f"get_{name}")() for name in names}
        every = list(range(session.get_world_size()))
        session.report({**said, "rank": session.get_world_rank(), "every": every})

    result = fit(loop, 2)
    said = result.metrics
    assert [said[k] for k in ("world_size", "world_rank", "local_rank", "local_world_size",
                              "node_rank")] == [2, 0, 0, 2, 0]
    assert said["trial_dir"] == result.path and said["experiment_name"] == "here"
    assert said["trial_name"] == f"DataParallelTrainer_{said['trial_id']}"
    assert said["trial_id"].endswith("_00000") and said["trial_resources"] == {"CPU": 2}


def test_outside_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_told", set())
    with pytest.warns(UserWarning, match=r"^report\(\) does nothing outside"):
        session.report({"loss": 1}, checkpoint=Checkpoint.from_dict({}))
    assert session.get_checkpoint() is None and session.get_trial_id() is None
    assert (session.get_world_size(), session.get_world_rank()) == (1, 0)
    assert train.get_context().get_metadata() == {}
    with pytest.raises(SessionError, match="outside of a train function"):
        session.get_dataset_shard("train")
    monkeypatch.setenv("MANTA_STRICT", "1")
    for call in (lambda: session.report({}), session.get_checkpoint, session.get_world_rank,
                 session.get_trial_dir):
        with pytest.raises(SessionError):
            call()


def test_shards_of_datasets_by_name() -> None:
    def loop() -> None:
        shards = {name: [r["item"] for r in session.get_dataset_shard(name).iter_rows()]
                  for name in ("train", "valid")}
        assert train.get_dataset_shard("train").ranks == 2
        session.report(shards)

    def without() -> None:
        with pytest.warns(UserWarning, match="the run has no data set"):
            assert train.get_dataset_shard("train") is None
        session.report({})

    numbers = data.from_items(list(range(6)))
    said = fit(loop, 2, datasets={"train": numbers, "valid": lambda: numbers.limit(2)}).metrics
    assert (said["train"], said["valid"]) == ([0, 1, 2], [0])  # rank 0's
    fit(without)


@pytest.mark.parametrize("wrong, answer", [
    (lambda: session.report(5), "a dict of metrics by name"),  # type: ignore[arg-type]
    (lambda: session.report({1: 2}), "a dict of metrics by name"),  # type: ignore[dict-item]
    (lambda: session.report({}, checkpoint={"a": 1}),  # type: ignore[arg-type]
     r"hint: checkpoint=Checkpoint.from_dict"),
    (lambda: session.report({}, checkpoint="path"),  # type: ignore[arg-type]
     r"hint: checkpoint=Checkpoint.from_directory"),
    (lambda: train.report({"a": 1}, b=2), "a dict of metrics, or metrics by name"),
    (lambda: train.report({"a": 1}, {"b": 2}), "a dict of metrics, or metrics by name"),
])
def test_wrong_reports(wrong: Any, answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        wrong()


def test_a_directory_that_is_not_there() -> None:
    def loop() -> None:
        session.report({}, checkpoint=Checkpoint("/nowhere/at/all"))
    with pytest.raises(FileNotFoundError, match="/nowhere/at/all is not there"):
        fit(loop)


def test_both_spellings_of_train_report() -> None:
    def loop() -> None:
        train.report({"loss": 3})
        train.report(loss=2, checkpoint=7)  # a metric of that name
        train.report({"loss": 1}, checkpoint=Checkpoint.from_dict({"x": 1}))
        found = train.get_checkpoint()
        assert found is not None and found.to_dict()["x"] == 1

    result = fit(loop)
    assert [row["loss"] for row in result.rows] == [3, 2, 1] and result.rows[1]["checkpoint"] == 7
    assert result.checkpoint.to_dict()["x"] == 1


def test_the_names_of_ray_1_9(tmp_path: Path) -> None:
    """from manta import train; train.Trainer, and generation 3's calls in a run of it."""
    def loop() -> Any:
        found = train.load_checkpoint() or {"epoch": -1}
        for epoch in range(found["epoch"] + 1, 3):
            train.report(loss=1 / (epoch + 1), rank=train.world_rank())
            train.save_checkpoint(epoch=epoch)
        session.report({"loss": 0.0}, checkpoint=Checkpoint.from_dict({"last": True}))
        return train.world_size(), train.local_rank(), session.get_trial_id()

    with Trainer(None, num_workers=2, logdir=tmp_path, quiet=True) as trainer:
        assert trainer.run(loop) == [(2, 0, None), (2, 1, None)]
        assert trainer.latest_checkpoint["last"] is True
        assert trainer.latest_checkpoint["_current_checkpoint_id"] == 0


def test_a_checkpoint_of_generation_2_is_one_of_generation_3() -> None:
    def loop() -> None:
        found = session.get_checkpoint()
        assert found is not None and found.to_dict()["epoch"] == 5
        sgd.report(loss=1)
        sgd.save_checkpoint(epoch=6)
        again = session.get_checkpoint()
        assert again is not None and again.to_dict()["epoch"] == 6

    result = fit(loop, resume_from_checkpoint=Checkpoint.from_dict({"epoch": 5}))
    assert result.checkpoint.to_dict()["epoch"] == 6


def test_other_ranks_get_rank_0s() -> None:
    def loop() -> None:
        rank = session.get_world_rank()
        session.report({}, checkpoint=Checkpoint.from_dict({"of": rank}))
        found = session.get_checkpoint()
        assert found is not None and found.to_dict()["of"] == 0

    assert fit(loop, 2).checkpoint.to_dict()["of"] == 0


SCRIPT = """
from manta.air import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig, session
from manta.train import DataParallelTrainer

class State:
    def __init__(self, n): self.n = n

FACTOR = 3

def train(config):
    found = session.get_checkpoint()
    start = found.to_dict()["state"].n if found else 0
    session.report({"x": start + FACTOR * config["x"]},
                   checkpoint=Checkpoint.from_dict({"state": State(start + 1)}))

def main():
    offset = 4
    def inner():
        session.report({"x": offset})
    run = RunConfig(verbose=0)
    one = ScalingConfig(num_workers=1)
    first = DataParallelTrainer(train, train_loop_config={"x": 2}, run_config=run).fit()
    second = DataParallelTrainer(train, train_loop_config={"x": 2}, run_config=run,
                                 resume_from_checkpoint=first.checkpoint).fit()
    third = DataParallelTrainer(inner, run_config=run, scaling_config=one).fit()
    fourth = DataParallelTrainer(lambda: session.report({"x": offset + 1}), run_config=run).fit()
    print(first.metrics["x"], second.metrics["x"], third.metrics["x"], fourth.metrics["x"],
          type(second.checkpoint.to_dict()["state"]) is State)

if __name__ == "__main__":
    main()
"""


def test_functions_of_the_main_script(tmp_path: Path) -> None:
    """Its classes in checkpoints, closures and lambdas, too."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=50)
    assert done.stdout == "6 7 4 5 True\n", done.stdout + done.stderr


def test_what_cannot_travel_is_named() -> None:
    import threading
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        fit(lambda: lock.acquire())
    with pytest.raises(TypeError, match="config"):
        fit(lambda config: None, train_loop_config={"lock": lock})


def test_scores_need_their_metric() -> None:
    def loop() -> None:
        session.report({"loss": 1}, checkpoint=Checkpoint.from_dict({}))
    with pytest.raises(ValueError, match='the score "acc"'):
        DataParallelTrainer(loop, run_config=RunConfig(
            verbose=0, checkpoint_config=CheckpointConfig(1, "acc"))).fit()

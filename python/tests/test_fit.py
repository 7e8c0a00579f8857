# SPDX-License-Identifier: Apache-2.0
"""Generation 3: a trainer's fit(), the configs it takes and the result it gives."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from manta import _command, train
from manta.air import (Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig,
                       ScalingConfig, session)
from manta.train import DataParallelTrainer, TrainingFailedError


def fit(loop: Callable[..., Any], config: Any = None, *, workers: int = 1, resume: Any = None,
        tmp: Path | None = None, **run: Any) -> Result:
    """Without a framework."""
    return DataParallelTrainer(
        loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(storage_path=tmp, verbose=0, **run),
        resume_from_checkpoint=resume).fit()


# --- a run ----------------------------------------------------------------------------------------


def counting(config: dict[str, Any]) -> None:
    found = session.get_checkpoint()
    start = found.to_dict()["step"] + 1 if found else 0
    for step in range(start, config["steps"]):
        session.report({"step": step, "rank": session.get_world_rank()},
                       checkpoint=Checkpoint.from_dict({"step": step, "w": [1.5] * 4}))


def test_metrics_and_checkpoint_are_rank_0s(tmp_path: Path) -> None:
    result = fit(counting, {"steps": 3}, workers=2, tmp=tmp_path, name="first")
    assert (result.metrics["step"], result.metrics["rank"]) == (2, 0)
    assert result.metrics["training_iteration"] == 3 and result.metrics["done"] is False
    assert result.metrics["time_total_s"] >= result.metrics["time_this_iter_s"] > 0
    assert {"timestamp", "date", "trial_id", "_timestamp"} <= set(result.metrics)
    assert [row["step"] for row in result.rows] == [0, 1, 2]
    assert result.error is None and result.config == {"steps": 3}
    assert result.log_dir == Path(result.path) and result.log_dir.parent == tmp_path / "first"
    assert result.checkpoint is not None
    saved = result.checkpoint.to_dict()
    assert list(saved) == ["step", "w", "_timestamp", "_preprocessor", "_current_checkpoint_id"]
    assert saved["step"] == 2 and saved["w"] == [1.5] * 4 and saved["_preprocessor"] is None
    assert abs(saved["_timestamp"] - time.time()) < 60
    assert result.checkpoint.path.startswith(result.path)


def test_numbers_of_checkpoints(tmp_path: Path) -> None:
    """From 0; in a resumed run from that of the one it was given, as document 004 prints it."""
    first = fit(counting, {"steps": 2}, tmp=tmp_path)
    assert first.checkpoint is not None
    assert first.checkpoint.to_dict()["_current_checkpoint_id"] == 1
    for given in (first.checkpoint, Checkpoint.from_dict(first.checkpoint.to_dict()),
                  Checkpoint(first.checkpoint.path)):  # plain values need nobody's word
        again = fit(counting, {"steps": 4}, resume=given, tmp=tmp_path)
        assert again.checkpoint is not None
        found = again.checkpoint.to_dict()
        assert (found["step"], found["_current_checkpoint_id"]) == (3, 2)


def test_a_copy_elsewhere_is_resumed_from(tmp_path: Path) -> None:
    """Plain values need no trust; what has to be unpickled does."""
    first = fit(counting, {"steps": 2}, tmp=tmp_path)
    assert first.checkpoint is not None
    copy = first.checkpoint.to_directory(tmp_path / "copy")
    again = fit(counting, {"steps": 4}, resume=Checkpoint.from_directory(copy), tmp=tmp_path)
    assert again.checkpoint is not None and again.checkpoint.to_dict()["step"] == 3
    odd = Checkpoint.from_dict({"step": 1, "odd": Odd(1, why="pickled")})
    foreign = Checkpoint.from_directory(odd.to_directory(tmp_path / "foreign"))
    with pytest.raises(PermissionError, match="trust=True"):
        fit(counting, {"steps": 4}, resume=foreign, tmp=tmp_path)


class Own:
    """What only runs code of the user's can read."""


def test_a_stranger_is_not_resumed_from(tmp_path: Path) -> None:
    place = Checkpoint.from_dict({"step": 1, "own": Own()}).to_directory(tmp_path / "c")
    with pytest.raises(PermissionError, match="trust=True"):
        fit(counting, {"steps": 3}, resume=Checkpoint(place), tmp=tmp_path)
    result = fit(counting, {"steps": 3}, resume=Checkpoint(place, trust=True), tmp=tmp_path)
    assert [row["step"] for row in result.rows] == [2]


# --- failures -------------------------------------------------------------------------------------


class Odd(Exception):
    """With an __init__ of its own."""

    def __init__(self, code: int, *, why: str):
        super().__init__(f"odd {code}: {why}")
        self.code = code


def test_an_error_is_of_its_own_type_and_a_failed_training(tmp_path: Path) -> None:
    def failing(config: dict[str, Any]) -> None:
        session.report({"loss": 1})
        if config["kind"] == "value":
            raise ValueError("bad")
        if config["kind"] == "odd":
            raise Odd(7, why="so")
        if config["kind"] == "os":
            open("/nowhere/at/all")
        if config["kind"] == "plain":
            raise Exception("plain")
        os.kill(os.getpid(), signal.SIGKILL)

    for kind, types in (("value", ValueError), ("odd", Odd), ("os", FileNotFoundError),
                        ("plain", Exception), ("lost", RuntimeError)):
        try:
            fit(failing, {"kind": kind}, tmp=tmp_path, name="failing")
        except TrainingFailedError as e:
            with pytest.raises(types):
                raise
            raised = e
        if kind == "odd":
            assert isinstance(raised, Odd)
            assert (raised.code, str(raised)) == (7, "odd 7: so")
            assert any("raised by rank 0" in note for note in raised.__notes__)
            again = pickle.loads(pickle.dumps(raised))
            assert type(again) is Odd and again.code == 7
        if kind == "os":
            assert getattr(raised, "filename") == "/nowhere/at/all"
    assert train.base_trainer.TrainingFailedError is TrainingFailedError


def dying(config: dict[str, Any]) -> None:
    """The last rank dies, or raises, after the report of step 2, once."""
    found = session.get_checkpoint()
    start = found.to_dict()["step"] + 1 if found else 0
    for step in range(start, 5):
        session.report({"step": step, "began": start},
                       checkpoint=Checkpoint.from_dict({"step": step}))
        mark = Path(config["mark"])
        if step == 2 and start == 0:
            if session.get_world_rank() == 0:
                mark.touch()
                time.sleep(30)  # ended by the death of the other
            while not mark.exists():
                time.sleep(0.01)
            if config["how"] == "raise":
                raise KeyError("once")
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_failures_are_survived_as_often_as_is_said(tmp_path: Path, how: str) -> None:
    config = {"mark": str(tmp_path / "mark"), "how": how}
    result = fit(dying, config, workers=2, tmp=tmp_path,
                 failure_config=FailureConfig(max_failures=1))
    assert result.metrics["step"] == 4 and result.metrics["began"] == 3
    assert [row["step"] for row in result.rows] == list(range(5))  # without those that are void
    assert [row["training_iteration"] for row in result.rows] == list(range(1, 6))
    lines = (result.log_dir / "result.json").read_text().splitlines()
    assert [json.loads(line) for line in lines] == result.rows
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["_current_checkpoint_id"] == 4
    with pytest.raises(TrainingFailedError):
        fit(dying, config, workers=2, tmp=tmp_path)


# --- directories ----------------------------------------------------------------------------------


def saving(config: dict[str, Any]) -> None:
    """Each rank a file of its own, and a directory inside."""
    import tempfile
    tempfile.tempdir = config.get("tmp")  # None: the usual one
    rank = session.get_world_rank()
    found = session.get_checkpoint()
    start = 0
    if found:
        with found.as_directory() as place:
            start = int(Path(place, "step.txt").read_text()) + 1
            for r in range(session.get_world_size()):
                assert Path(place, f"rank{r}.txt").read_text() == str(start - 1)
    for step in range(start, 4):
        with tempfile.TemporaryDirectory(dir=config.get("dir")) as place:
            if rank == 0:
                Path(place, "step.txt").write_text(str(step))
            Path(place, f"rank{rank}.txt").write_text(str(step))
            Path(place, "sub").mkdir()
            Path(place, "sub", f"{rank}").touch()
            if rank:
                time.sleep(0.05)  # rank 0 waits
            session.report({"step": step, "loss": abs(step - 1)},
                           checkpoint=Checkpoint.from_directory(place))
            left = sorted(os.listdir(place))
            assert not left if config["moved"] else "sub" in left
        mark = Path(config["mark"])
        if step == 2 and rank == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moved", [True, False])
def test_directories_of_all_ranks_are_one_checkpoint(tmp_path: Path, moved: bool) -> None:
    """Through a death, with one checkpoint kept; `moved`: it is below the temporary directory."""
    config = {"mark": str(tmp_path / "mark"), "moved": moved}
    if not moved:
        config |= {"dir": str(tmp_path), "tmp": str(tmp_path / "tmp")}
        (tmp_path / "tmp").mkdir()
    result = fit(saving, config, workers=2, tmp=tmp_path, name="dirs",
                 failure_config=FailureConfig(max_failures=1),
                 checkpoint_config=CheckpointConfig(num_to_keep=1))
    assert (tmp_path / "mark").exists() and result.checkpoint is not None
    place = Path(result.checkpoint.path)
    assert {p.name: p.read_text() for p in place.glob("*.txt")} == {
        "step.txt": "3", "rank0.txt": "3", "rank1.txt": "3"}
    assert sorted(p.name for p in (place / "sub").iterdir()) == ["0", "1"]
    assert [p.name for p in place.parent.glob("checkpoint_*")] == [place.name]
    assert len(result.best_checkpoints) == 1
    assert result.best_checkpoints[0][0].path == str(place)
    assert result.best_checkpoints[0][1]["step"] == 3
    assert result.checkpoint.to_dict().keys() == {"_fs_checkpoint"}
    again = fit(saving, config, workers=2, tmp=tmp_path, resume=result.checkpoint)
    assert again.checkpoint is None  # all steps were done


def test_the_best_directories_stay(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    config = {"mark": str(tmp_path / "mark"), "moved": True}
    kept = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss",
                            checkpoint_score_order="min")
    result = fit(saving, config, tmp=tmp_path, checkpoint_config=kept)
    assert [m["step"] for _, m in result.best_checkpoints] == [1, 2]  # loss 0 and 1, the newer one
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "step.txt").read_text() == "3"  # and the newest
    best = result.get_best_checkpoint("loss", "min")
    assert best is not None and Path(best.path, "step.txt").read_text() == "1"


def test_ranks_that_do_not_report_are_not_waited_for(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        import tempfile

        from manta._front.fit import parts
        parts.ARRIVAL_S = 0.2
        if session.get_world_rank() == 1:
            for _ in range(config["others"]):
                session.report({})
            return
        for step in range(2):
            with tempfile.TemporaryDirectory() as place:
                Path(place, "step").write_text(str(step))
                session.report({"step": step}, checkpoint=Checkpoint(place))

    result = fit(loop, {"others": 0}, workers=2, tmp=tmp_path)
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "step").read_text() == "1"
    with pytest.raises(RuntimeError, match="report"):  # one that left is named
        fit(loop, {"others": 1}, workers=2, tmp=tmp_path)


# --- a run that broke off -------------------------------------------------------------------------


BROKEN = """
import os, signal, sys
from manta.air import Checkpoint, RunConfig, session
from manta.train import DataParallelTrainer

def train(config):
    found = session.get_checkpoint()
    for step in range(found.to_dict()["step"] + 1 if found else 0, 4):
        session.report({"step": step, "lr": config["lr"]},
                       checkpoint=Checkpoint.from_dict({"step": step}))
        if step == 1 and config["how"] == "kill":
            import time
            while not os.path.exists(os.path.join(session.get_trial_dir(), "checkpoints/000001")):
                time.sleep(0.01)
            os.kill(config["driver"], signal.SIGKILL)
            time.sleep(30)
        if step == 1 and config["how"] == "raise":
            raise ValueError("bad luck")

DataParallelTrainer(train, train_loop_config={"lr": 0.5, "how": sys.argv[2], "driver": os.getpid()},
                    run_config=RunConfig("broken", storage_path=sys.argv[1], verbose=0)).fit()
"""


@pytest.mark.parametrize("how", ["raise", "kill", "end"])
def test_an_experiment_is_restored(tmp_path: Path, how: str) -> None:
    (tmp_path / "program.py").write_text(BROKEN)
    done = subprocess.run([sys.executable, "program.py", str(tmp_path), how], cwd=tmp_path,
                          capture_output=True, text=True, timeout=50)
    assert (done.returncode == 0) == (how == "end"), done.stderr
    path = tmp_path / "broken"
    assert DataParallelTrainer.can_restore(path) and not DataParallelTrainer.can_restore(tmp_path)
    config = {"lr": 0.25, "how": "end"}  # the function comes from the record
    result = DataParallelTrainer.restore(path, train_loop_config=config).fit()
    lr = [0.5] * 4 if how == "end" else [0.5, 0.5, 0.25, 0.25]
    rows = [row for row in result.rows]
    assert [row["step"] for row in rows][-2:] == [2, 3] and rows[-1]["lr"] == lr[-1]
    if how != "kill":  # whose driver may not have seen the last rows
        assert [row["step"] for row in rows] == [0, 1, 2, 3]
        assert [row["lr"] for row in rows] == lr
    assert result.checkpoint is not None and result.checkpoint.to_dict()["step"] == 3
    assert result.checkpoint.to_dict()["_current_checkpoint_id"] == 3
    assert len(list(path.glob("*/run.log"))) == 1  # it went on in the same directory
    again = Result.from_path(result.path)
    assert again.metrics == result.metrics and again.checkpoint is not None
    assert again.checkpoint.to_dict()["step"] == 3


def test_a_record_of_others_is_not_read(tmp_path: Path) -> None:
    fit(counting, {"steps": 1}, tmp=tmp_path, name="mine")
    record = tmp_path / "mine" / "trainer.pkl"
    record.chmod(0o666)
    with pytest.raises(PermissionError, match="trust=True"):
        DataParallelTrainer.restore(tmp_path / "mine")
    DataParallelTrainer.restore(tmp_path / "mine", trust=True)
    with pytest.raises(ValueError, match="storage_path/name"):
        DataParallelTrainer.restore(tmp_path)


# --- when it ends ---------------------------------------------------------------------------------


def endless(config: dict[str, Any]) -> None:
    step = 0
    while True:
        session.report({"step": step, "loss": 10 - step}, checkpoint=Checkpoint.from_dict(
            {"step": step}))
        step += 1


class Plateau:
    """As those of Ray are: it has a state, and may stop all."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen.append(result["loss"])
        return False

    def stop_all(self) -> bool:
        return len(self.seen) == 3


@pytest.mark.parametrize("stop", [{"training_iteration": 3}, {"step": 2, "loss": 100},
                                  lambda trial, result: result["loss"] <= 8 and "_" in trial,
                                  Plateau()], ids=["iteration", "metric", "function", "object"])
def test_a_run_ends_where_it_is_told_to(tmp_path: Path, stop: Any) -> None:
    result = fit(endless, {}, workers=2, tmp=tmp_path, name="stopped", stop=stop)
    assert [row["step"] for row in result.rows] == [0, 1, 2]
    assert result.metrics["done"] is True and result.error is None
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == 2  # that of the last report
    again = DataParallelTrainer.restore(tmp_path / "stopped").fit()
    assert again.metrics == result.metrics  # it is over


def test_a_metric_of_the_name_done_is_the_users(tmp_path: Path) -> None:
    def loop() -> None:
        for step in range(3):
            session.report({"done": True, "step": step})
    result = fit(loop, tmp=tmp_path)
    assert [(row["step"], row["done"]) for row in result.rows] == [(i, True) for i in range(3)]


def test_a_metric_that_nobody_reports_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no report has the metric 'acc'.*\nhint: it has loss"):
        fit(endless, {}, tmp=tmp_path, stop={"acc": 1})


# --- several hosts --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["here", "there"])
def test_directories_of_several_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                      first: str) -> None:
    """Wherever rank 0 is: all of them have the run's directory."""
    agent = f"exec {os.environ.get('MANTA_BIN') or _command.path()} agent --stdio"
    hosts = ["here 1", f"there 1 {agent}"]
    monkeypatch.setenv("MANTA_HOSTS", "; ".join(hosts if first == "here" else hosts[::-1]))

    def loop() -> None:
        import tempfile
        for step in range(2):
            with tempfile.TemporaryDirectory() as place:
                Path(place, f"rank{session.get_world_rank()}").write_text(str(step))
                session.report({"node": session.get_node_rank()},
                               checkpoint=Checkpoint.from_directory(place))

    result = fit(loop, workers=2, tmp=tmp_path, checkpoint_config=CheckpointConfig(num_to_keep=1))
    assert result.checkpoint is not None
    place = Path(result.checkpoint.path)
    assert {p.name: p.read_text() for p in place.iterdir()} == {"rank0": "1", "rank1": "1"}
    assert [p.name for p in place.parent.glob("checkpoint_*")] == ["checkpoint_000002"]

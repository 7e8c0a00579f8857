# SPDX-License-Identifier: Apache-2.0
"""Loops over data sets as programs write them, in a run in which a worker dies: each step has the
rows that it has without the death."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from manta import _command, _manta, sgd
from manta.sgd import Trainer
from test_run import _meet, _number_in, numbers

PER_LOOP = 3


class Steps:
    """The steps of a train function, written down; rank `rank` dies behind step `at`."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.log = config, Path(config["log"])
        self.rank, self.attempt = sgd.world_rank(), _manta.place()[5]
        self.state = sgd.load_checkpoint() or {"step": 0, "loop": 0, "fold": 0}
        self.step: int = self.state["step"]
        self.out = open(self.log / f"attempt-{self.attempt}-{self.rank}", "w")
        self.out.write(json.dumps(self.step) + "\n")

    def do(self, *ids: Any) -> None:
        self.step += 1
        self.out.write(json.dumps([self.step, [list(map(int, i)) for i in ids]]) + "\n")
        self.out.flush()
        sgd.report(step=self.step)

    def save(self, **state: int) -> None:
        (self.log / f"at-{self.attempt}-{self.rank}").write_text(str(self.step))
        _meet(self.log, self.attempt, self.step)
        sgd.save_checkpoint(**{**self.state, **state, "step": self.step})
        if self.rank == 0:
            (self.log / f"saved-{self.attempt}").write_text(str(self.step))

    def maybe_die(self) -> None:
        rank, at = self.config["kill"]
        if self.attempt or (self.rank, self.step) != (rank, at):
            return
        while _number_in(self.log / "saved-0") < self.config["saved"]:
            time.sleep(0.001)
        (self.log / "killed").touch()
        os.kill(os.getpid(), 9)


# --- programs -------------------------------------------------------------------------------------


def left_by_break(config: dict[str, Any]) -> None:
    """A few steps of each epoch, from an iterator of its own, or always the same one."""
    steps = Steps(config)
    shard = sgd.get_data_shard("a")
    kept = shard.iter_batches(batch_size=2) if config["kept"] else None
    for loop in range(steps.state["loop"], 4):
        for i, batch in enumerate(kept or shard.iter_batches(batch_size=2)):
            if i == PER_LOOP:
                break
            steps.do(batch["id"])
            steps.maybe_die()
        steps.save(loop=loop + 1)


def asked_to_stop(config: dict[str, Any]) -> None:
    """Leaves the loop to save, as a program does that is asked to stop."""
    steps = Steps(config)
    for _ in range(2):
        for batch in sgd.get_data_shard("a").iter_batches(batch_size=2):
            steps.do(batch["id"])
            if steps.step == config["stop"] and not steps.attempt:
                os.kill(os.getpid(), 15)
                while not sgd.preempted():
                    time.sleep(0.001)
            if sgd.preempted():
                break
        if sgd.preempted():
            break
    steps.save()


def half_of_a_torch_iterator(config: dict[str, Any]) -> None:
    steps = Steps(config)
    for loop in range(steps.state["loop"], 3):
        it = iter(sgd.get_data_shard("a").to_torch("y", batch_size=2))
        for _ in range(PER_LOOP):
            x, _ = next(it)
            steps.do(x[:, 0].tolist())
            steps.maybe_die()
        del it
        steps.save(loop=loop + 1)


def two_at_once(config: dict[str, Any]) -> None:
    """A second data set goes round and round beside the first."""
    steps = Steps(config)
    other = sgd.get_data_shard("b").iter_batches(batch_size=1)
    for loop in range(steps.state["loop"], 2):
        for batch in sgd.get_data_shard("a").iter_batches(batch_size=2):
            beside = next(other, None)
            steps.do(batch["id"], [] if beside is None else beside["id"])
            steps.save(loop=loop)
            steps.maybe_die()


def one_in_the_other(config: dict[str, Any]) -> None:
    """All rows of one set for each batch of it, and of another."""
    steps = Steps(config)
    shard = sgd.get_data_shard("b")
    for outer in shard.iter_batches(batch_size=2):
        for inner in shard.iter_batches(batch_size=3):
            for innermost in sgd.get_data_shard("a").iter_batches(batch_size=10):
                steps.do(outer["id"], inner["id"], innermost["id"])
                steps.maybe_die()
        steps.save()


def cross_validation(config: dict[str, Any]) -> None:
    steps = Steps(config)
    for fold, (train, validation) in enumerate(sgd.get_datasets()):
        if fold < steps.state["fold"]:
            continue
        begin = steps.state["loop"] if fold == steps.state["fold"] else 0
        for loop in range(begin, 2):
            for batch in train.get_shard().iter_batches(batch_size=2):
                steps.do(batch["id"])
                steps.save(fold=fold, loop=loop)
                steps.maybe_die()
            for batch in validation.get_shard().iter_batches(batch_size=4):
                steps.do(batch["id"])
            steps.save(fold=fold, loop=loop + 1)


# --- with and without a death ---------------------------------------------------------------------


def surviving(log: Path) -> dict[int, list[Any]]:
    """What each step had, on all ranks, of the last attempt that made it."""
    files = sorted(log.glob("attempt-*"), key=lambda f: int(f.name.split("-")[1]))
    read = [(f.name.split("-")[1], *map(json.loads, f.read_text().splitlines())) for f in files]
    starts = {attempt: start for attempt, start, *_ in read}
    made: dict[int, list[Any]] = {}
    for attempt, _, *lines in read:
        end = min((s for a, s in starts.items() if int(a) > int(attempt)), default=10 ** 9)
        for step, ids in lines:
            if step <= end:
                made.setdefault(step, []).append(ids)
    return {step: sorted(ids) for step, ids in made.items()}


def run(program: Callable[..., None], log: Path, dataset: Any, **config: Any) -> dict[int, Any]:
    log.mkdir()
    with Trainer(config.pop("backend", None), num_workers=(2, 2), quiet=True) as trainer:
        trainer.run(program, {"log": str(log), "kill": (0, -1), **config}, dataset=dataset)
    assert (log / "killed").exists() == ("kill" in config)
    return surviving(log)


def check(program: Callable[..., None], tmp_path: Path, dataset: Any, kill: tuple[int, int],
          saved: int, **config: Any) -> dict[int, Any]:
    whole = run(program, tmp_path / "whole", dataset, **config)
    after = run(program, tmp_path / "after", dataset, kill=kill, saved=saved, **config)
    assert after == whole
    return whole


SET = numbers(40).random_shuffle(seed=9, window=8)


@pytest.mark.parametrize("kept", [False, True])
def test_a_loop_that_was_left_is_over(tmp_path: Path, kept: bool) -> None:
    whole = check(left_by_break, tmp_path, {"a": SET}, kill=(1, 8), saved=6, kept=kept)
    assert len(whole) == 4 * PER_LOOP
    firsts = [whole[1 + PER_LOOP * loop] for loop in range(4)]
    assert all(a != b for a, b in zip(firsts, firsts[1:]))


def test_a_torch_iterator_that_was_left(tmp_path: Path) -> None:
    from manta.data import col
    check(half_of_a_torch_iterator, tmp_path, {"a": SET.add_column("y", col("id") * 2.0)},
          kill=(0, 5), saved=3, backend="torch")


def test_two_data_sets_in_step(tmp_path: Path) -> None:
    whole = check(two_at_once, tmp_path, {"a": SET, "b": numbers(7).random_shuffle(seed=1)},
                  kill=(1, 13), saved=13)
    assert len(whole) == 20


def test_one_loop_in_another(tmp_path: Path) -> None:
    whole = check(one_in_the_other, tmp_path, {"a": SET, "b": numbers(9).random_shuffle(seed=1)},
                  kill=(0, 7), saved=4)
    assert len(whole) == 3 * 2 * 2


def test_cross_validation(tmp_path: Path) -> None:
    check(cross_validation, tmp_path, SET.to_cv(splits=3), kill=(1, 24), saved=24)


PROGRAM = """
import os, signal, sys
from test_loops import SET, asked_to_stop, two_at_once
from test_run import numbers
from manta.sgd import SGDCallback, Trainer
log, what = sys.argv[1:]

class Kill(SGDCallback):
    def handle_result(self, results, **info):
        if what == "kill" and results[0]["step"] == 9 and not os.path.exists(log + "/killed"):
            open(log + "/killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

with Trainer(None, num_workers=2, quiet=True) as t:
    t.run(asked_to_stop if what == "stop" else two_at_once,
          {"log": log, "kill": (0, -1), "stop": 5}, callbacks=[Kill()],
          dataset={"a": SET, "b": numbers(7).random_shuffle(seed=1)})
"""


@pytest.mark.parametrize("what", ["kill", "stop"])
def test_a_driver_that_ends_in_an_epoch(tmp_path: Path, what: str) -> None:
    """Killed, or asked to stop in a loop that it leaves: `manta resume` goes on there."""
    script = tmp_path / "program.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n" + PROGRAM)
    log, results = tmp_path / "log", tmp_path / "results"
    log.mkdir()
    env = {**os.environ, "MANTA_RESULTS": str(results), "MANTA_PYTHON": sys.executable}

    def call(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, env=env, timeout=50, stdin=subprocess.DEVNULL,
                              capture_output=True)

    first = call(sys.executable, str(script), str(log), what)
    assert first.returncode != 0
    again = call(_command.path(), "resume", str(next(results.iterdir())))
    assert again.returncode == 0, again.stderr
    made = surviving(log)
    assert sorted(made) == list(range(1, 21))
    for epoch in range(2):
        rows = [i for step in range(1, 11) for rank in made[10 * epoch + step] for i in rank[0]]
        assert sorted(rows) == list(range(40))

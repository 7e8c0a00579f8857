# SPDX-License-Identifier: Apache-2.0
"""Data sets in runs whose number of workers changes, and the random numbers drawn there."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

import manta.data as data
from manta import _command, _manta, sgd
from manta.sgd import Host, SGDCallback, Trainer
from test_run import EPOCHS, EVERY, _die, _meet, _number_in, numbers, surviving

AGENT = f"exec {os.environ.get('MANTA_BIN') or _command.path()} agent --stdio"
HOLDS = {2: 6, 1: 14}  # world size: the step that it waits at until it is resized


class Resizes(SGDCallback):
    """To 1 worker and then to 3, each when the one before has been made."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.left = trainer, [(2, 3, 1), (1, 9, 3)]

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        if self.left and len(results) == self.left[0][0] and results[0]["step"] >= self.left[0][1]:
            self.trainer.resize(self.left.pop(0)[2])


# --- each row once --------------------------------------------------------------------------------


def batches(kind: str) -> Iterator[list[int]]:
    shard = sgd.get_data_shard("train")
    if kind == "torch":
        yield from (x[:, 0].long().tolist() for x, _ in shard.to_torch(batch_size=3))
    else:
        yield from (batch["id"].tolist() for batch in shard.iter_batches(batch_size=3))


def consume(config: dict[str, Any]) -> int:
    """As consume of test_run, but waits for resizes."""
    rank, world, log = sgd.world_rank(), sgd.world_size(), Path(config["log"])
    state = sgd.load_checkpoint() or {"epoch": 0, "step": 0}
    step, attempt = state["step"], _manta.place()[5]
    with open(log / f"attempt-{attempt}-{rank}", "w") as out:
        out.write(json.dumps({"step": step, "world": world}) + "\n")
        for epoch in range(state["epoch"], EPOCHS):
            for ids in batches(config["kind"]):
                step += 1
                out.write(json.dumps([step, epoch, ids]) + "\n")
                out.flush()
                sgd.report(step=step)
                (log / f"at-{attempt}-{rank}").write_text(str(step))
                _meet(log, attempt, step)
                sgd.save_checkpoint(epoch=epoch, step=step)
                if rank == 0:
                    (log / "saved").write_text(str(step))
                _die(config, attempt, rank, step, log)
                while step >= HOLDS.get(world, step + 1):
                    sgd.save_checkpoint(epoch=epoch, step=step)
                    time.sleep(0.01)
    return world


@pytest.mark.parametrize("kind", ["rows", "torch"])
def test_each_row_once_after_kills_and_resizes(tmp_path: Path, kind: str) -> None:
    draw = random.Random(kind)
    rows = numbers().random_shuffle(seed=4, window=16)
    if kind == "torch":
        rows = rows.add_column("y", data.col("id") * 2.0)
    # Attempts: 2 workers, one dies; 2; 1; 3, one dies; 3.
    kills = [(draw.randrange(2), 1 + draw.randrange(2)), (9, 0), (9, 0),
             (draw.randrange(3), 15 + draw.randrange(5))]
    with Trainer("torch" if kind == "torch" else None, num_workers=2, max_retries=9,
                 quiet=True) as trainer:
        resizes = Resizes(trainer)
        worlds = trainer.run(consume, {"log": str(tmp_path), "kills": kills, "kind": kind},
                             dataset={"train": rows}, callbacks=[resizes])
    assert worlds == [3, 3, 3] and not resizes.left
    assert len(list(tmp_path.glob("killed-*"))) == 2
    heads = {f.name: json.loads(f.open().readline())["world"] for f in tmp_path.glob("attempt-*")}
    assert set(heads.values()) == {1, 2, 3}
    assert surviving(tmp_path) == EVERY


# --- random numbers -------------------------------------------------------------------------------


def seed(number: int) -> None:
    import numpy
    random.seed(number)
    numpy.random.seed(number)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)


def drawn() -> list[float]:
    import numpy
    torch = sys.modules.get("torch")
    return [random.random(), float(numpy.random.rand())] + ([torch.rand(1).item()] if torch else [])


def draw(config: dict[str, Any]) -> list[list[float]]:
    """Draws for each batch; rank `dies` dies, or all wait to be resized, when step 4 was saved."""
    rank, log, dies = sgd.world_rank(), Path(config["log"]), config["dies"]
    attempt, step = _manta.place()[5], (sgd.load_checkpoint() or {"step": 0})["step"]
    if step == 0:
        seed(rank)
    mine: list[list[float]] = []
    for _ in sgd.get_data_shard().iter_batches(batch_size=1):
        step += 1
        mine.append(drawn())
        sgd.report(step=step)
        (log / f"at-{attempt}-{rank}").write_text(str(step))
        _meet(log, attempt, step)
        if step > 4:
            continue
        sgd.save_checkpoint(step=step)
        (log / f"saved-{rank}").write_text(str(step))
        while step == 4 and attempt == 0 and dies is not None:
            sgd.save_checkpoint(step=step)
            if rank == dies and all(_number_in(log / f"saved-{r}") == 4 for r in range(2)):
                os.kill(os.getpid(), 9)
            time.sleep(0.005)
    return mine


def run_draw(log: Path, dies: int | None, backend: str | None = None,
             **options: Any) -> list[list[list[float]]]:
    log.mkdir()
    with Trainer(backend, num_workers=2, quiet=True, **options) as trainer:
        resizes = Resizes(trainer)
        resizes.left = [(2, 4, 3)] if dies == -1 else []
        result: list[list[list[float]]] = trainer.run(
            draw, {"log": str(log), "dies": dies}, dataset=numbers(24), callbacks=[resizes])
    return result


@pytest.mark.parametrize("dies", [0, 1])
def test_random_states_come_back_on_their_host(tmp_path: Path, dies: int) -> None:
    hosts = [Host("here", 1), Host("there", 1, AGENT)]
    whole = run_draw(tmp_path / "whole", None)
    after = run_draw(tmp_path / "after", dies, hosts=hosts)
    assert [len(d) for d in whole] == [12, 12] and whole[0] != whole[1]
    assert after == [d[4:] for d in whole]


def test_random_states_after_a_resize(tmp_path: Path) -> None:
    """Ranks that were there go on; a new one draws numbers that follow from the checkpoint."""
    whole = run_draw(tmp_path / "whole", None, "torch")
    after, again = (run_draw(tmp_path / name, -1, "torch") for name in ("after", "again"))
    assert after == again
    steps = len(after[2])
    assert steps > 3
    assert [d[:steps] for d in after[:2]] == [d[4:][:steps] for d in whole]
    flat = [x for d in after for row in d for x in row]
    assert len(set(flat)) == len(flat)

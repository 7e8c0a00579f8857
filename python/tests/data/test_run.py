# SPDX-License-Identifier: Apache-2.0
"""Data sets in a run: shards, names, and each row once over the steps that survive."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import manta.data as data
from manta import _command, _manta, sgd
from manta.sgd import Trainer

ROWS, EPOCHS = 61, 3


def numbers(n: int = ROWS) -> data.Dataset:
    return data.from_items([{"id": i} for i in range(n)])


# --- shards ---------------------------------------------------------------------------------------


def test_every_rank_gets_its_shard() -> None:
    least = 10

    def train() -> list[list[int]]:
        shard = sgd.get_data_shard()
        return [b["id"].tolist() for _ in range(2) for b in shard.iter_batches(batch_size=4)]

    rows = numbers().filter(lambda row: row["id"] >= least).random_shuffle(seed=5)
    with Trainer(None, num_workers=3, quiet=True) as trainer:
        ranks = trainer.run(train, dataset=rows)
    assert len({len(batches) for batches in ranks}) == 1  # as many steps for all
    half = len(ranks[0]) // 2
    epochs = [[i for rank in ranks for b in rank[part] for i in b]
              for part in (slice(half), slice(half, None))]
    assert all(sorted(e) == list(range(least, ROWS)) for e in epochs)
    assert epochs[0] != epochs[1]  # another order


def test_datasets_by_name_and_by_number() -> None:
    def by_name() -> Any:
        shards = sgd.get_data_shard()
        assert sorted(shards) == ["a", "b"]
        with pytest.raises(KeyError, match="'a', 'b'"):
            sgd.get_data_shard("c")
        return sgd.get_data_shard("a").count(), sgd.get_dataset("b").count()

    def by_number() -> list[list[int]]:
        return [[r["id"] for r in part.get_shard(sgd.world_rank()).iter_rows()]
                for pair in sgd.get_datasets() for part in pair]

    with Trainer(None, num_workers=2, quiet=True) as trainer:
        counts = trainer.run(by_name, dataset={"a": numbers(10), "b": numbers(5)})
        assert counts == [(5, 5), (5, 5)]
        first, second = trainer.run(by_number, dataset=numbers(12).to_cv(splits=3))
    parts = [sorted(a + b) for a, b in zip(first, second)]
    assert all(sorted(t + v) == list(range(12)) for t, v in zip(parts[::2], parts[1::2]))
    assert sorted(sum(parts[1::2], [])) == list(range(12))


def test_data_sets_that_are_not_split(tmp_path: Path) -> None:
    from manta import train
    out = tmp_path / "seen"
    out.mkdir()

    def loop() -> None:
        counts = {name: sum(len(b["id"]) for b in train.get_dataset_shard(name).iter_batches(
            batch_size=4)) for name in ("train", "test")}
        assert train.get_dataset("test").count() == 7
        (out / str(train.get_context().get_world_rank())).write_text(json.dumps(counts))

    def trainer(config: Any) -> train.DataParallelTrainer:
        return train.DataParallelTrainer(
            loop, scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
            datasets={"train": numbers(10), "test": numbers(7)}, dataset_config=config)

    trainer(train.DataConfig(datasets_to_split=["train"])).fit()
    assert [json.loads((out / rank).read_text()) for rank in "01"] == [{"train": 5, "test": 7}] * 2
    trainer(None).fit()
    seen = [json.loads((out / rank).read_text()) for rank in "01"]
    assert seen[0]["test"] + seen[1]["test"] == 7
    with pytest.raises(ValueError, match="no data set 'trian'\nhint: datasets has 'train', 'test'"):
        trainer(train.DataConfig(["trian"]))
    with pytest.raises(TypeError, match='must be "all" or a list of names'):
        train.DataConfig("train")


def test_plain_code_and_wrong_things_are_told() -> None:
    for call in (sgd.get_dataset, sgd.get_datasets, sgd.get_data_shard):
        with pytest.raises(sgd.SessionError, match="outside of a train function"):
            call()
    with Trainer(None, num_workers=1, quiet=True) as trainer:
        with pytest.raises(TypeError, match=r"dataset\['x'\] must be a Dataset"):
            trainer.run(lambda: None, dataset={"x": 3})
        with pytest.raises(sgd.SessionError, match="the run has no data set"):
            trainer.run(lambda: sgd.get_data_shard())


def test_exceptions_of_functions_are_those_of_the_run() -> None:
    def picky(row: dict[str, Any]) -> bool:
        if row["id"] == 5:
            raise ZeroDivisionError("five")
        return True

    def train() -> None:
        for _ in sgd.get_data_shard().iter_batches(batch_size=4):
            pass

    with Trainer(None, num_workers=2, quiet=True) as trainer:
        with pytest.raises(ZeroDivisionError, match="five"):
            trainer.run(train, dataset=numbers(10).filter(picky))


# --- each row once --------------------------------------------------------------------------------


def consume(config: dict[str, Any]) -> None:
    """Notes the rows of every step in a file of its attempt and rank; the checkpoint has the number
    of the step. Rank `killed` dies in step `at` of the first attempts, after rank 0 saved that."""
    rank, log = sgd.world_rank(), Path(config["log"])
    state = sgd.load_checkpoint() or {"epoch": 0, "step": 0}
    step, attempt = state["step"], _manta.place()[5]
    shard = sgd.get_data_shard("train")
    with open(log / f"attempt-{attempt}-{rank}", "w") as out:
        out.write(json.dumps({"step": step, "world": sgd.world_size()}) + "\n")
        for epoch in range(state["epoch"], EPOCHS):
            for batch in shard.iter_batches(batch_size=3):
                step += 1
                out.write(json.dumps([step, epoch, batch["id"].tolist()]) + "\n")
                out.flush()
                sgd.report(step=step)
                (log / f"at-{attempt}-{rank}").write_text(str(step))
                _meet(log, attempt, step)
                sgd.save_checkpoint(epoch=epoch, step=step)
                if rank == 0:
                    (log / "saved").write_text(str(step))
                _die(config, attempt, rank, step, log)


def _number_in(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


def _meet(log: Path, attempt: int, step: int) -> None:
    """Rank 0 saves what all ranks have done, as after a collective."""
    others = range(1, sgd.world_size()) if sgd.world_rank() == 0 else ()
    while any(_number_in(log / f"at-{attempt}-{r}") < step for r in others):
        _manta.check()
        time.sleep(0.0005)


def _die(config: dict[str, Any], attempt: int, rank: int, step: int, log: Path) -> None:
    kills = config["kills"]
    if attempt >= len(kills) or kills[attempt][0] != rank or kills[attempt][1] > step:
        return
    deadline = time.monotonic() + 20
    while _number_in(log / "saved") < step and time.monotonic() < deadline:
        time.sleep(0.001)
    (log / f"killed-{attempt}").touch()
    os.kill(os.getpid(), 9)


def surviving(log: Path) -> Counter[tuple[int, int]]:
    """(epoch, row) of all steps that no later attempt took back."""
    attempts: dict[int, list[list[Any]]] = {}
    starts: dict[int, int] = {}
    for file in log.glob("attempt-*-*"):
        number = int(file.name.split("-")[1])
        head, *lines = [json.loads(line) for line in file.read_text().splitlines()]
        starts[number] = head["step"]
        attempts.setdefault(number, []).extend(lines)
    seen: Counter[tuple[int, int]] = Counter()
    last = max(attempts)
    for number, lines in attempts.items():
        end = min((starts[n] for n in range(number + 1, last + 1)), default=10 ** 9)
        seen.update((epoch, row) for step, epoch, rows in lines if step <= end for row in rows)
    return seen


EVERY = Counter({(epoch, row): 1 for epoch in range(EPOCHS) for row in range(ROWS)})


def deadly(folder: Path) -> data.Dataset:
    """Its filter runs in processes of the reader, and ends some of them."""
    def keep(row: dict[str, Any]) -> bool:
        mark = folder / f"died-{row['id']}"
        if row["id"] % 80 == 7 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return row["id"] % 2 == 0

    return data.range(2 * ROWS).filter(keep).map(lambda row: {"id": row["id"] // 2},
                                                 types={"id": "i64"})  # no rows are needed for that


@pytest.mark.parametrize("made", ["plain", "shuffled", "flat", "deadly"])
def test_each_row_once_after_kills(tmp_path: Path, made: str) -> None:
    rows = numbers()
    if made == "deadly":
        rows = deadly(tmp_path).random_shuffle(seed=5, window=20)
    if made == "shuffled":
        rows = rows.random_shuffle(seed=11, window=16)
    if made == "flat":
        rows = data.range(ROWS // 2 + 1).flat_map(
            lambda row: [{"id": 2 * row["id"] + i} for i in range(2)][:ROWS - 2 * row["id"]])
    draw = random.Random(made)
    kills = [(draw.randrange(2), 2 + 9 * i + draw.randrange(6)) for i in range(3)]
    with Trainer(None, num_workers=(2, 2), max_retries=9, quiet=True) as trainer:
        trainer.run(consume, {"log": str(tmp_path), "kills": kills}, dataset={"train": rows})
    assert len(list(tmp_path.glob("killed-*"))) == 3
    assert len(list(tmp_path.glob("died-*"))) == (2 if made == "deadly" else 0)
    assert surviving(tmp_path) == EVERY


PROGRAM = """
import os, sys
from test_run import consume, numbers
from manta.sgd import Trainer
log, kills = sys.argv[1], [(0, 7), (1, 19)]
with Trainer(None, num_workers=int(os.environ["WORKERS"]), max_retries=0, quiet=True) as t:
    t.run(consume, {"log": log, "kills": kills},
          dataset={"train": numbers().random_shuffle(seed=2)})
"""


def test_each_row_once_after_resumes_with_other_numbers_of_workers(tmp_path: Path) -> None:
    """The program is run again by `manta resume`, as a person would after its end."""
    script = tmp_path / "program.py"
    here = str(Path(__file__).parent)
    script.write_text(f"import sys; sys.path.insert(0, {here!r})\n" + PROGRAM)
    results = tmp_path / "results"

    def run(workers: int, *words: str) -> int:
        env = {**os.environ, "MANTA_RESULTS": str(results), "WORKERS": str(workers),
               "MANTA_PYTHON": sys.executable}
        return subprocess.run(words, env=env, timeout=50, stdin=subprocess.DEVNULL,
                              capture_output=True).returncode

    assert run(2, sys.executable, str(script), str(tmp_path)) != 0
    newest = str(next(results.iterdir()))
    command = [_command.path(), "resume", newest]
    assert run(3, *command) != 0
    assert run(1, *command) == 0
    assert len(list(tmp_path.glob("killed-*"))) == 2
    assert surviving(tmp_path) == EVERY


# --- random numbers -------------------------------------------------------------------------------


def draw_numbers(config: dict[str, Any]) -> list[float]:
    state = sgd.load_checkpoint() or {"drawn": []}
    drawn = list(state["drawn"])
    if not drawn:
        random.seed(100 + sgd.world_rank())
    log = Path(config["log"])
    mine: list[float] = []
    for batch in sgd.get_data_shard().iter_batches(batch_size=1):
        mine.append(random.random())
        drawn.append(mine[-1])
        sgd.report(n=len(drawn))
        sgd.save_checkpoint(drawn=drawn)
        (log / f"at-{sgd.world_rank()}").write_text(str(len(drawn)))
        if len(drawn) == 4 and sgd.world_rank() == 0 and config["kills"] and not (
                log / "killed").exists():
            while _number_in(log / "at-1") < 4:
                time.sleep(0.001)
            (log / "killed").touch()
            os.kill(os.getpid(), 9)
    return mine


def test_random_states_go_on_from_the_checkpoint(tmp_path: Path) -> None:
    def numbers_drawn(name: str, kills: bool) -> list[list[float]]:
        log = tmp_path / name
        log.mkdir()
        with Trainer(None, num_workers=(2, 2), quiet=True) as trainer:
            drawn: list[list[float]] = trainer.run(
                draw_numbers, {"log": str(log), "kills": kills}, dataset=numbers(16))
        assert (log / "killed").exists() == kills
        return drawn

    whole = numbers_drawn("whole", False)
    after = numbers_drawn("after", True)
    assert [len(d) for d in whole] == [8, 8] and whole[0] != whole[1]
    for all_of_it, rest in zip(whole, after):
        assert 0 < len(rest) < 8 and rest == all_of_it[-len(rest):]

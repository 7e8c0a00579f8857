# SPDX-License-Identifier: Apache-2.0
"""Functions of a run's data sets in processes of the reader: called once for all workers of a host,
with the same rows whatever dies, and what they raise and print arrives."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import manta.data as data
from manta import _command, sgd
from manta.sgd import Host, Trainer

numpy = pytest.importorskip("numpy", reason="numpy is not installed")

FILES, EACH = 4, 250
ROWS = FILES * EACH


@pytest.fixture
def files(tmp_path: Path) -> str:
    folder = tmp_path / "csv"
    folder.mkdir()
    for f in range(FILES):
        lines = [f"{f * EACH + i},{i % 7}" for i in range(EACH)]
        (folder / f"{f}.csv").write_text("\n".join(["id,x", *lines]) + "\n")
    return str(folder)


def read(files: str) -> data.Dataset:
    return data.read_csv(files, block_bytes=1024)


def collect() -> tuple[int, list[dict[str, Any]], float]:
    """In a worker: its process, its rows, and the seconds in functions."""
    shard = sgd.get_data_shard()
    rows = [row for _ in range(2) for row in shard.iter_rows()]
    return os.getpid(), rows, shard.stats()["step"]


def run(rows: data.Dataset, workers: int = 2, train: Any = collect, **options: Any) -> list[Any]:
    with Trainer(None, num_workers=workers, quiet=True, **options) as trainer:
        found: list[Any] = trainer.run(train, dataset=rows)
    return found


def ids(ranks: list[Any]) -> Counter[int]:
    return Counter(row["id"] for _, rows, _ in ranks for row in rows)


def twice(numbers: Any) -> Counter[int]:
    return Counter({n: 2 for n in numbers})


# --- where they are called ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_goes_through_a_function_once_for_all_workers(files: str, tmp_path: Path,
                                                            workers: int) -> None:
    calls = tmp_path / "calls"

    def keep(row: dict[str, Any]) -> bool:
        with open(calls, "a") as out:
            out.write(f"{os.getpid()} {row['id']}\n")
        return row["id"] % 3 == 0

    kept = read(files).filter(keep)
    assert "filter(" in kept.explain() and "[reader's functions]" in kept.explain()
    ranks = run(kept, workers)
    assert ids(ranks) == twice(range(0, ROWS, 3))
    lines = [line.split() for line in calls.read_text().splitlines()]
    assert sorted(int(row) for _, row in lines) == list(range(ROWS))  # in two epochs, for all ranks
    assert not {int(pid) for pid, _ in lines} & {pid for pid, _, _ in ranks}
    assert all(seconds > 0 for _, _, seconds in ranks)


def test_every_host_calls_by_itself(files: str, tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def keep(row: dict[str, Any]) -> bool:
        with open(calls, "a") as out:
            out.write(f"{row['id']}\n")
        return row["id"] % 4 == 0

    agent = f"exec {os.environ.get('MANTA_BIN') or _command.path()} agent --stdio"
    ranks = run(read(files).filter(keep), hosts=[Host("a", 1, agent), Host("b", 1, agent)],
                logdir=tmp_path / "runs")
    assert ids(ranks) == twice(range(0, ROWS, 4))
    assert Counter(map(int, calls.read_text().split())) == twice(range(ROWS))


def test_all_kinds_of_steps_give_what_they_give_without_a_run(files: str) -> None:
    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {**batch, "y": batch["x"] * self.by}

    made = (read(files).filter(lambda row: row["id"] % 2 == 0)
            .map_batches(Scale, batch_size=16, fn_constructor_args=(3,))
            .add_column("z", lambda batch: batch["y"] + 1, batch_format="numpy")
            .flat_map(lambda row: [{**row, "k": k} for k in range(row["x"] % 3)])
            .random_shuffle(seed=3, window=64))
    ranks = run(made.repeat(1))
    want = [tuple(row.items()) for row in made.take_all()]
    assert Counter(tuple(r.items()) for _, rows, _ in ranks for r in rows) == Counter(want * 2)


def test_a_map_that_comes_last_is_called_in_the_worker(files: str) -> None:
    def note(row: dict[str, Any]) -> dict[str, Any]:
        odd = {"odd": row["id"]} if row["id"] % 2 else {}
        return {"id": row["id"], "pid": os.getpid(), **odd}

    last = (read(files).filter(lambda row: row["id"] % 3).map(note)
            .select_columns(["pid", "id", "odd"]).random_shuffle(seed=2))
    where = [line.rpartition("[")[2] for line in last.explain().splitlines()]
    assert where == ["reader]", "worker]", "worker]", "reader's functions]", "reader]"]
    ranks = run(last)
    assert ids(ranks) == twice(n for n in range(ROWS) if n % 3)
    assert all(row["pid"] == pid for pid, rows, _ in ranks for row in rows)
    assert all(row["odd"] == (row["id"] if row["id"] % 2 else None)
               for _, rows, _ in ranks for row in rows)
    ranks = run(read(files).map(note).filter(lambda row: row["id"] % 3))
    assert ids(ranks) == twice(n for n in range(ROWS) if n % 3)
    assert not {r["pid"] for _, rows, _ in ranks for r in rows} & {pid for pid, _, _ in ranks}


def test_a_function_that_cannot_leave_its_process_stays_there(files: str) -> None:
    def guarded() -> data.Dataset:
        lock = threading.Lock()

        def keep(row: dict[str, Any]) -> bool:
            with lock:
                return row["id"] % 2 == 0 and os.getpid() == pid

        pid = os.getpid()
        return sgd.get_data_shard().filter(keep)

    def train() -> tuple[int, list[dict[str, Any]], float]:
        kept = guarded()
        assert "[reader's functions]" not in kept.explain() and "[worker]" in kept.explain()
        return os.getpid(), [row for _ in range(2) for row in kept.iter_rows()], 0.0

    assert ids(run(read(files), train=train)) == twice(range(0, ROWS, 2))


def test_chance_is_the_same_for_the_same_rows(files: str) -> None:
    def keep(row: dict[str, Any]) -> bool:
        return random.random() + numpy.random.random() > 1

    first, again = (ids(run(read(files).filter(keep), workers)) for workers in (2, 3))
    assert first == again and ROWS // 4 < len(first) < ROWS * 3 // 4


# --- failures -------------------------------------------------------------------------------------


class Odd(Exception):
    def __init__(self, row: int, why: str) -> None:
        super().__init__(row, why)
        self.row = row


def test_exceptions_come_with_the_function_in_their_traceback(files: str) -> None:
    def picky(row: dict[str, Any]) -> bool:
        if row["id"] == 700:
            raise Odd(row["id"], "seven hundred")
        return True

    with pytest.raises(Odd, match="seven hundred") as caught:
        run(read(files).filter(picky))
    assert caught.value.row == 700
    assert "picky" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def child_named(parent: int, name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if (entry / "comm").read_text() == name + "\n" and parent_of(int(entry.name)) == parent:
                found.append(int(entry.name))
        except (OSError, ValueError):
            pass
    return found


def killer(folder: Path, what: str) -> Any:
    """A filter in which, at certain rows and once each, its process or the reader dies."""
    def keep(row: dict[str, Any]) -> bool:
        mark = folder / f"{what}-{row['id']}"
        if row["id"] in (130, 131, 600) and not mark.exists():
            mark.touch()
            if what == "caller":
                os.kill(os.getpid(), signal.SIGKILL)
            for pid in child_named(parent_of(os.getppid()), "manta-reader"):
                os.kill(pid, signal.SIGKILL)
            time.sleep(20)  # it dies with the reader
        return row["id"] % 3 != 1
    return keep


@pytest.mark.parametrize("what", ["caller", "reader"])
def test_no_row_is_lost_when_processes_die(files: str, tmp_path: Path, what: str) -> None:
    rows = read(files).filter(killer(tmp_path, what)).random_shuffle(seed=1, window=100)
    assert ids(run(rows)) == twice(n for n in range(ROWS) if n % 3 != 1)
    assert len(list(tmp_path.glob(f"{what}-*"))) == 3


def test_a_function_that_always_dies_is_told(files: str) -> None:
    def die(row: dict[str, Any]) -> bool:
        if row["id"] == 300:
            print("about to die", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        return True

    with pytest.raises(Exception, match=r"(?s)filter\(.*die.*died 3 times over rows .*1\.csv"):
        run(read(files).filter(die))


def test_a_function_that_hangs_ends_with_the_run(files: str, tmp_path: Path) -> None:
    mark = tmp_path / "hangs"

    def hang(row: dict[str, Any]) -> bool:
        with open(mark, "w") as out:
            out.write(str(os.getpid()))
        time.sleep(1000)
        return True

    def train() -> None:
        if sgd.world_rank() == 1:
            while not mark.exists() or not mark.read_text():
                time.sleep(0.01)
            raise Odd(0, "enough")
        sgd.get_data_shard().take_all()

    with pytest.raises(Odd, match="enough"):
        run(read(files).filter(hang), train=train)
    pid, deadline = mark.read_text(), time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the function's process outlives its run"
        time.sleep(0.01)


# --- a script -------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
import manta.data as data
from manta import sgd
from manta.sgd import Trainer

FACTOR = int(sys.argv[2])

class Tagged:
    def __init__(self, word):
        self.word = word

TAG = Tagged("seen")

def scaled(value):
    return value * FACTOR

def note(batch):
    print(TAG.word, len(batch["id"]), "rows")
    return {"id": batch["id"], "y": scaled(batch["x"])}

def train():
    return sum(int(b["y"].sum()) for b in sgd.get_data_shard().iter_batches(batch_size=50))

if __name__ == "__main__":
    rows = data.read_csv(sys.argv[1]).filter(lambda row: row["id"] % FACTOR).map_batches(note)
    with Trainer(None, num_workers=2) as trainer:
        print("sum", sum(trainer.run(train, dataset=rows)))
"""


def test_functions_of_a_script_have_its_globals_and_print(files: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), files, "5"], capture_output=True, text=True,
                          timeout=50, cwd=tmp_path)
    want = sum(5 * (i % 7) for _ in range(FILES) for i in range(EACH) if i % 5)
    assert f"sum {want}\n" in done.stdout, done.stdout + done.stderr
    assert "seen 200 rows" in done.stdout

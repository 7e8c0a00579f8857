# SPDX-License-Identifier: Apache-2.0
"""A loop over run_generator() that is left early, in whatever way and order: the run ends with its
processes, and the interpreter as if there had been none."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import manta
from manta import sgd
from manta.sgd import Trainer

START = """
import gc, os, sys, threading, time
from pathlib import Path
from manta import sgd
from manta.sgd import Trainer
from manta.sgd.callbacks import SGDCallback

def train():
    from manta import sgd
    Path({where!r}, f"pid.{{os.getpid()}}").touch()
    for i in range(100000):
        sgd.report(i=i)
        time.sleep(0.001)

class Tell(SGDCallback):
    def finish_training(self, error=False, **info):
        print("finished, error", error)

trainer = Trainer(backend=None, num_workers=1, logdir={where!r}, quiet=True, callbacks=[Tell()])
rows = trainer.run_generator(train)
first = next(rows)
"""

# What the script goes on with: its last lines, what it prints at the end, and its exit code.
ENDS = {
    "global": ("print('end')", ["end", "finished, error True"], 0),
    "shut down": ("""
try:
    for row in rows: raise ValueError("my own")
except ValueError: pass
trainer.shutdown()
print("end")""", ["end", "finished, error True"], 0),
    "returned": ("""
def main():
    for row in rows:
        if row["i"] == 5: return rows
kept = main()
del rows, trainer
print("end")""", ["end", "finished, error True"], 0),
    "exit": ("""
for row in rows: sys.exit(7)""", ["finished, error True"], 7),
    "uncaught": ("""
for row in rows: raise RuntimeError("my own")""", ["finished, error True"], 1),
    "daemon thread": ("""
rows.close()
slow = trainer.run_generator(lambda: time.sleep(1000))
def take():
    for row in slow: pass
threading.Thread(target=take, daemon=True).start()
time.sleep(0.2)
print("end")""", ["finished, error True", "end", "finished, error True"], 0),
    "other thread": ("""
def take():
    for row in rows:
        if row["i"] >= 5: break
thread = threading.Thread(target=take)
thread.start(); thread.join()
def drop():
    global rows
    del rows
thread = threading.Thread(target=drop)
thread.start(); thread.join()
print("end")""", ["finished, error True", "end"], 0),
    "forked child": ("""
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert next(rows)["i"] > first["i"]
print("end")""", ["end", "finished, error True"], 0),
    "module state": ("""
import types
module = types.ModuleType("late"); sys.modules["late"] = module
module.kept = [rows, trainer]; module.cycle = module
del rows, trainer
print("end")""", ["end", "finished, error True"], 0),
}


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def pids(where: Path) -> list[int]:
    return [int(p.name.split(".")[1]) for p in where.glob("pid.*")]


def check_end(name: str, script: subprocess.Popen[str], where: Path) -> None:
    _, said, code = ENDS[name]
    out, err = script.communicate(timeout=50)
    assert script.returncode == code, f"{name}: {script.returncode}\n{out}\n{err}"
    assert out.splitlines() == said, f"{name}: {out}\n{err}"
    assert ("RuntimeError: my own" in err) if name == "uncaught" else (
        err == "" or name == "daemon thread"), f"{name}: {err}"
    assert "Exception ignored" not in err and "free()" not in err, f"{name}: {err}"
    assert pids(where), name
    assert all(is_gone(pid) for pid in pids(where)), f"{name}: a worker is left"


def test_scripts_that_leave_the_loop_end_well(tmp_path: Path) -> None:
    scripts = {}
    for name, (last, *_) in ENDS.items():
        where = tmp_path / name.replace(" ", "-")
        where.mkdir()
        (where / "main.py").write_text(START.format(where=str(where)) + last + "\n")
        scripts[name] = subprocess.Popen([sys.executable, where / "main.py"], text=True,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE)
    for name, script in scripts.items():
        check_end(name, script, tmp_path / name.replace(" ", "-"))


# --- in one process -------------------------------------------------------------------------------


def count(config: dict[str, Any]) -> int:
    """Counts on from its checkpoint."""
    saved = sgd.load_checkpoint()
    done: int = saved["i"] if saved else 0
    while done < config["n"]:
        done += 1
        sgd.report(i=done)
        sgd.save_checkpoint(i=done)
        time.sleep(0.001)
    return done


@pytest.fixture
def trainer() -> Any:
    with Trainer(backend=None, num_workers=1, quiet=True) as t:
        yield t


def test_what_was_left_can_be_resumed(trainer: Trainer) -> None:
    for row in trainer.run_generator(count, config={"n": 10**9}):
        if row["i"] == 20:
            break
    left = trainer.latest_run_dir
    assert trainer.run(count, config={"n": 3}) == [3]  # free for the next one at once
    assert left is not None
    with Trainer.restore(left) as again:
        assert again.run(count, config={"n": 5})[0] > 5
        assert again.latest_run_dir == left


def test_dropping_it_ends_it(trainer: Trainer) -> None:
    for how in ("del", "cycle", "return"):
        rows: Any = trainer.run_generator(count, config={"n": 10**9})
        assert next(rows)["i"] == 1
        if how == "cycle":
            cycle: list[Any] = [rows]
            cycle.append(cycle)
            del cycle
        del rows
        gc.collect()
    assert trainer.run(count, config={"n": 3}) == [3]


def test_it_outlives_its_trainer() -> None:
    trainer = Trainer(backend=None, num_workers=1, quiet=True)
    rows = trainer.run_generator(count, config={"n": 3})
    del trainer
    gc.collect()
    assert [row["i"] for row in rows] == [1, 2, 3]
    assert rows.get_returns() == [3]


def test_another_thread_closes_it(trainer: Trainer) -> None:
    rows = trainer.run_generator(lambda: time.sleep(1000))
    closer = threading.Timer(0.2, rows.close)
    closer.start()
    with pytest.raises(manta.Canceled):
        next(rows)
    closer.join()
    assert trainer.run(os.getpid) != [os.getpid()]

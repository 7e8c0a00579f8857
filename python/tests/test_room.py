# SPDX-License-Identifier: Apache-2.0
"""Trainers of one driver that need the same room: idle ones give way, one with an instance does
not. The host of these tests has one GPU that nobody has ever seen."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ENVIRONMENT = {"MANTA_NUM_GPUS": "1", "MANTA_NUM_CPUS": "4"}


def driver(code: str, place: Path) -> str:
    """What a driver of its own prints: the agent reads how much there is when it starts."""
    head = """
    import os
    from manta.sgd import Trainer, WorkerGroup

    def gpu_trainer(name):
        return Trainer(None, num_workers=1, use_gpu=True, name=name, quiet=True)

    def alive(pid):
        return os.path.exists(f"/proc/{pid}")
    """
    place.joinpath("runtime").mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50, cwd=place,
        env=os.environ | ENVIRONMENT | {"XDG_RUNTIME_DIR": str(place / "runtime"),
                                        "MANTA_RESULTS": str(place / "results")})
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_cell_that_is_run_again_gets_the_room(tmp_path: Path) -> None:
    said = driver("""
    pids = []
    trainers = []
    for turn in range(3):  # nobody calls shutdown, and all of them are still there
        trainers.append(gpu_trainer(f"cell{turn}"))
        pids += trainers[-1].run(os.getpid)
        assert not any(map(alive, pids[:-1])), pids

    def fail():
        raise RuntimeError("before shutdown")

    try:
        trainers.append(gpu_trainer("failed"))
        trainers[-1].run(fail)
    except RuntimeError:
        pass
    assert trainers[0].run(os.getpid)[0] not in pids  # its own again, in a new process
    print("silent")
    """, tmp_path)
    assert said == "silent\n"


def test_workers_with_an_instance_stay(tmp_path: Path) -> None:
    said = driver("""
    class Counter:
        def __init__(self):
            self.n = 1

    def count(counter):
        counter.n += 1
        return counter.n

    keeper = gpu_trainer("keeper")
    keeper.start(Counter)
    waiting = Trainer(None, num_workers=1, use_gpu=True, name="waiting")

    import threading
    done = []
    thread = threading.Thread(target=lambda: done.append(waiting.run(os.getpid)))
    thread.start()
    thread.join(0.5)
    assert not done and keeper.execute(count) == [2]
    keeper.shutdown()
    thread.join(30)
    assert len(done) == 1, done
    waiting.shutdown()

    group = WorkerGroup(1, use_gpu=True, name="list")
    thread = threading.Thread(target=lambda: done.append(waiting.run(os.getpid)))
    before = group.execute(os.getpid)
    thread.start()
    thread.join(0.5)
    assert len(done) == 1 and group.execute(os.getpid) == before
    group.shutdown()
    thread.join(30)
    assert len(done) == 2, done
    """, tmp_path)
    assert "waiting for room: asked for 1 GPU" in said
    assert "held by trainer keeper" in said and "kept for its instance" in said
    assert "held by trainer list" in said

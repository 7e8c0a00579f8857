# SPDX-License-Identifier: Apache-2.0
"""bench/py/memory.py - the proportional set size of each of 2 torch workers, and of as many
processes of their own that have imported torch, in MB."""

import subprocess
import sys

from manta.sgd import Trainer

FRESH = "import torch, sys; print(0, flush=True); sys.stdin.read()"


def pss_mb(pid: object) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:")) / 1024


def private_mb(pid: object) -> float:
    """What no other process has."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_")) / 1024


def train() -> float:
    import time
    time.sleep(0.5)  # both are there, and idle
    return pss_mb("self")


def fresh() -> list[float]:
    them = [subprocess.Popen([sys.executable, "-c", FRESH], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE) for _ in range(2)]
    for one in them:
        one.stdout.readline()  # type: ignore[union-attr]
    sizes = [pss_mb(one.pid) for one in them]
    for one in them:
        one.communicate()
    return sizes


if __name__ == "__main__":
    print("fresh_mb", max(fresh()))
    with Trainer(backend="torch", num_workers=2, threads_per_worker=1) as trainer:
        print("worker_mb", max(trainer.run(train)))

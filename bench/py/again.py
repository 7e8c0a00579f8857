# SPDX-License-Identifier: Apache-2.0
"""bench/py/again.py RUNS - further runs on a trainer, and further trainers in a driver.

A further run in fresh processes: from its call until the first line of the function in the last of
2 workers, with a process group that is up; and what a process that waits for it has of its own.
A new trainer: from before it is made until the first line of the function in the last of 2 workers,
with a process group that is up, in turns with manta's and gloo's.
"""

import os
import sys
import time

import memory
import warm
from manta.sgd import TorchConfig, Trainer


def line() -> int:
    return time.monotonic_ns()


def met() -> int:
    import torch.distributed as dist
    when = time.monotonic_ns()
    dist.barrier()  # there is a group, and it works
    return when


def fresh(backend: str) -> float:
    start = time.monotonic_ns()
    with Trainer(backend=TorchConfig(backend=backend), num_workers=2) as trainer:
        return (max(trainer.run(met)) - start) / 1e6


runs = int(sys.argv[1])
warm.wait()
with Trainer(backend="torch", num_workers=2, keep_workers=True) as trainer:
    trainer.run(line)
    for _ in range(runs):
        start = time.monotonic_ns()
        trainer.run(line)
        print("again_ms", (time.monotonic_ns() - start) / 1e6)
with Trainer(backend="torch", num_workers=2) as trainer:
    trainer.run(met)
    for _ in range(runs):
        time.sleep(0.2)  # as a person has, or a loop that looks at the results
        start = time.monotonic_ns()
        first = max(trainer.run(met))
        print("fresh_first_ms", (first - start) / 1e6)
        print("fresh_ms", (time.monotonic_ns() - start) / 1e6)
    time.sleep(0.2)
    print("ahead_mb", max(memory.private_mb(pid) for pid in trainer.execute(os.getpid)))
    for _ in range(runs):
        start = time.monotonic_ns()
        first = max(trainer.run(met))
        print("at_once_first_ms", (first - start) / 1e6)
for _ in range(runs):
    for backend in ("manta", "gloo"):
        print(f"new_{backend}_ms", fresh(backend))

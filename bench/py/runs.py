# SPDX-License-Identifier: Apache-2.0
"""bench/py/runs.py RUNS - many runs on one trainer: what driver, agent and what workers are forked
from have after a tenth of them, and at the end."""

import os
import sys
import time
from pathlib import Path

from manta.sgd import Trainer


def children(pid: int) -> list[int]:
    return [int(c) for task in Path(f"/proc/{pid}/task").iterdir()
            for c in (task / "children").read_text().split()]


def family(pid: int) -> list[int]:
    return [p for child in children(pid) for p in (child, *family(child))]


def figures(pid: int) -> tuple[int, float]:
    """Descriptors, resident MB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    rss = next(int(s.split()[1]) for s in status if s.startswith("VmRSS"))
    return len(os.listdir(f"/proc/{pid}/fd")), rss / 1024


def note(when: str) -> None:
    time.sleep(0.5)  # those of the last run are gone
    agent, = children(os.getpid())
    zygote, *_ = children(agent)
    for name, pid in (("driver", os.getpid()), ("agent", agent), ("zygote", zygote)):
        fds, mb = figures(pid)
        print(f"{name}_fds_{when}", fds)
        print(f"{name}_mb_{when}", mb)
    print(f"processes_{when}", len(family(os.getpid())))


runs = int(sys.argv[1])
with Trainer(backend=None, num_workers=2, quiet=True) as trainer:
    for i in range(runs):
        trainer.run(os.getpid)
        if i + 1 == max(1, runs // 10):
            note("early")
    note("late")

# SPDX-License-Identifier: Apache-2.0
"""A DDP training whose ranks kill themselves by turns, for every system the same.

The files of `where` outlive the processes: `kill-K` holds when the K-th was killed, `again-K-RANK`
when that rank had done its first step after it, from a checkpoint.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable

STEPS = 12  # from start to kill; a checkpoint every 4
EVERY = 4


def note(file: Path) -> None:
    """Whole or not at all: it is followed by a kill."""
    beside = file.with_name(f"new-{file.name}")
    beside.write_text(str(time.monotonic_ns()))
    beside.rename(file)


def train(where: str, kills: int, rank: int, save: Callable[[dict[str, Any]], None],
          load: Callable[[], dict[str, Any] | None], after_s: float = 0,
          device: str = "cpu") -> int:
    """The number of the last step. after_s: a kill comes so long after the first line at least."""
    first_line = time.monotonic()
    import models
    import torch
    from torch.nn.parallel import DistributedDataParallel

    died = len([*Path(where).glob("kill-*")])
    torch.manual_seed(0)
    model = DistributedDataParallel(models.mlp().to(device))
    optimizer = models.sgd(model)
    x, y = torch.randn(64, 784).to(device), torch.randint(10, (64,)).to(device)
    at = 0
    if state := load():
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        at = int(state["at"])
    if died and not at:
        raise RuntimeError("there was no checkpoint to begin from")
    for here in range(STEPS):
        models.step(model, optimizer, x, y)
        at += 1
        if here == 0 and died:
            next(model.parameters()).sum().item()  # it is done, on a GPU as well
            note(Path(where, f"again-{died - 1}-{rank}"))
        if at % EVERY == 0:
            save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                  "at": at})
    while died < kills and time.monotonic() < first_line + after_s:
        models.step(model, optimizer, x, y)
        # of one mind, or a rank waits in a step that the other does not take
        late = torch.tensor(float(time.monotonic() >= first_line + after_s))
        torch.distributed.all_reduce(late)
        if late > 0:
            break
    if died < kills and rank == died % 2:
        time.sleep(0.05)  # the other is in its next step, or will be
        note(Path(where, f"kill-{died}"))
        os.kill(os.getpid(), signal.SIGKILL)
    if died < kills:
        models.step(model, optimizer, x, y)  # without its peer
        raise RuntimeError("the other rank is not gone")
    return at


def times(where: str, kills: int) -> list[float]:
    """Milliseconds from each kill to the first step of the later rank."""
    def when(name: str) -> int:
        return int(Path(where, name).read_text())
    return [(max(when(f"again-{k}-{rank}") for rank in (0, 1)) - when(f"kill-{k}")) / 1e6
            for k in range(kills)]

# SPDX-License-Identifier: Apache-2.0
"""bench/peers/torchrun_train.py start|recover DIR [KILLS] - torchrun runs this on every rank.

start: notes in DIR when the group had met. recover: the training of bench/py/recovery.py, with its
checkpoint in a file, since torchrun keeps no state.
"""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path
from typing import Any

import recovery
import torch
import torch.distributed as dist


def save(file: Path, state: dict[str, Any]) -> None:
    if dist.get_rank() == 0:
        beside = file.with_suffix(".new")
        torch.save(state, beside)
        beside.rename(file)


def load(file: Path) -> Any:
    return torch.load(file) if file.exists() else None


def main() -> int:
    what, where = sys.argv[1], Path(sys.argv[2])
    # Not through torchrun's own store: after a restart ranks may find the address of one that is
    # gone there, and wait for it for half an hour.
    kills = len([*where.glob("kill-*")])
    dist.init_process_group("gloo", init_method=f"file://{where}/meet-{kills}",
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
                            timeout=datetime.timedelta(seconds=60))
    if what == "start":
        recovery.note(where / f"line-{dist.get_rank()}")
    else:
        file = where / "state.pt"
        recovery.train(str(where), int(sys.argv[3]), dist.get_rank(),
                       lambda state: save(file, state), lambda: load(file))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())

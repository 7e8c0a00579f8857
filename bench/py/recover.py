# SPDX-License-Identifier: Apache-2.0
"""bench/py/recover.py BACKEND KILLS DIR - SIGKILL of 1 of 2 DDP workers until both train again."""

import sys
from typing import Any

import recovery
import warm
from manta import sgd
from manta.sgd import TorchConfig, Trainer


def train(config: dict[str, Any]) -> int:
    return recovery.train(config["dir"], config["kills"], sgd.world_rank(),
                          lambda state: sgd.save_checkpoint(**state), sgd.load_checkpoint)


backend, kills, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
warm.wait()
with Trainer(backend=TorchConfig(backend=backend), num_workers=(2, 2), max_retries=-1) as trainer:
    trainer.run(train, {"dir": where, "kills": kills})
for ms in recovery.times(where, kills):
    print("recover_ms", ms)

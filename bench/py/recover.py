# SPDX-License-Identifier: Apache-2.0
"""bench/py/recover.py BACKEND KILLS DIR [S [DEVICE]] - SIGKILL of 1 of 2 DDP workers until both
train again.

S: one kill, in a driver that has just been started, so many seconds after the first line of the
train function. 0: what workers are forked from is warm. DEVICE: cpu, or cuda, which both share.
"""

import sys
from typing import Any

import recovery
import warm
from manta import sgd
from manta.sgd import TorchConfig, Trainer


def train(config: dict[str, Any]) -> int:
    return recovery.train(config["dir"], config["kills"], sgd.world_rank(),
                          lambda state: sgd.save_checkpoint(**state), sgd.load_checkpoint,
                          config["after_s"], config["device"])


backend, kills, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
after_s = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
device = sys.argv[5] if len(sys.argv) > 5 else "cpu"
if not after_s:
    warm.wait()
with Trainer(backend=TorchConfig(backend=backend), num_workers=(2, 2), max_retries=-1,
             threads_per_worker=1, gpus_per_worker=0.5 if device == "cuda" else None) as trainer:
    trainer.run(train, {"dir": where, "kills": kills, "after_s": after_s, "device": device})
for ms in recovery.times(where, kills):
    print("recover_ms", ms)

# SPDX-License-Identifier: Apache-2.0
"""bench/py/others_recover.py FRAMEWORK KILLS DIR - SIGKILL of 1 of 2 workers with TensorFlow or
Horovod until both train again."""

import sys
from typing import Any

import others
import recovery
from manta import sgd
from manta.sgd import Trainer


def train(config: dict[str, Any]) -> int:
    return others.train(config["name"], config["dir"], config["kills"], sgd.world_rank(),
                        lambda state: sgd.save_checkpoint(**state), sgd.load_checkpoint)


name, kills, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with Trainer(name, num_workers=(2, 2), max_retries=-1, threads_per_worker=1) as trainer:
    trainer.run(train, {"name": name, "dir": where, "kills": kills})
for ms in recovery.times(where, kills):
    print("recover_ms", ms)

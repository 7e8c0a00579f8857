# SPDX-License-Identifier: Apache-2.0
"""bench/py/ddp.py MODEL BATCH STEPS ROUNDS - DDP over gloo and over manta, and without either.

Two trainers, in turns. Of each block of steps the median counts, and of the ranks the slower.
"""

import statistics
import sys
from typing import Any

from manta.sgd import TorchConfig, Trainer


def train(config: dict[str, Any]) -> tuple[float, float]:
    """ms of a step with DDP, and of one where every rank trains by itself."""
    import itertools

    import models
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def block(wrap: Any) -> float:
        ticks = models.steps(config["model"], config["batch"], wrap)
        next(ticks), next(ticks)
        dist.barrier()
        return statistics.median(itertools.islice(ticks, config["steps"]))

    return block(DistributedDataParallel), block(lambda model: model)


model, (batch, steps, rounds) = sys.argv[1], (int(word) for word in sys.argv[2:])
trainers = {backend: Trainer(backend=TorchConfig(backend=backend), num_workers=2)
            for backend in ("manta", "gloo")}
try:
    for turn in range(rounds):
        for backend in sorted(trainers, reverse=bool(turn % 2)):
            both = trainers[backend].run(train, {"model": model, "batch": batch, "steps": steps})
            print(f"{backend}_ms", max(ddp for ddp, _ in both))
            print(f"{backend}_alone_ms", max(alone for _, alone in both))
finally:
    for trainer in trainers.values():
        trainer.shutdown()

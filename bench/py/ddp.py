# SPDX-License-Identifier: Apache-2.0
"""bench/py/ddp.py MODEL BATCH STEPS ROUNDS - DDP over gloo, over manta, and with the communication
removed: a hook of DDP's own that gives every bucket back as it is.

All three in the same two workers, a few steps each in turns: whatever else the machine does meets
them alike. Of a turn the mean step counts, and of the ranks the slower.
"""

import sys
import time
from typing import Any

from manta.sgd import TorchConfig, Trainer


def train(config: dict[str, Any]) -> dict[str, list[float]]:
    """ms of a step, by kind and turn."""
    import models
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def keep(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def without(model: Any) -> Any:
        model = DistributedDataParallel(model)
        model.register_comm_hook(None, keep)
        return model

    gloo = dist.new_group(backend="gloo")
    wraps = {"manta": DistributedDataParallel, "without": without,
             "gloo": lambda model: DistributedDataParallel(model, process_group=gloo)}
    ticks = {kind: models.steps(config["model"], config["batch"], wrap)
             for kind, wrap in wraps.items()}
    ms: dict[str, list[float]] = {kind: [] for kind in wraps}
    for turn in range(-1, config["rounds"]):  # the first warms up
        for kind in sorted(ticks, reverse=bool(turn % 2)):
            next(ticks[kind])  # the caches are another's
            dist.barrier()
            start = time.perf_counter()
            for _ in range(config["steps"]):
                next(ticks[kind])
            ms[kind].append((time.perf_counter() - start) * 1e3 / config["steps"])
    return {kind: those[1:] for kind, those in ms.items()}


model, (batch, steps, rounds) = sys.argv[1], (int(word) for word in sys.argv[2:])
with Trainer(backend=TorchConfig(backend="manta"), num_workers=2, threads_per_worker=1) as trainer:
    first, second = trainer.run(train, {"model": model, "batch": batch, "steps": steps,
                                        "rounds": rounds})
for kind in first:
    for pair in zip(first[kind], second[kind]):
        print(f"{kind}_ms", max(pair))

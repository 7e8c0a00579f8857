# SPDX-License-Identifier: Apache-2.0
"""bench/py/same.py - the digest of what a training ended with: twice, then with a kill in it."""

import tempfile
from typing import Any

from manta import sgd
from manta.sgd import Trainer

STEPS, KILL_AT = 30, 17


def train(config: dict[str, Any]) -> str:
    import hashlib
    import os
    import random
    import signal

    import models
    import numpy
    import torch
    from manta.train.torch import enable_reproducibility
    from torch.nn.parallel import DistributedDataParallel

    enable_reproducibility(7)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Dropout(0.1), models.mlp()))
    optimizer = models.sgd(model)
    at = 0
    if state := sgd.load_checkpoint():
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        at = state["at"]
        torch.set_rng_state(state["torch"])
        random.setstate(state["random"])
        numpy.random.set_state(state["numpy"])
    while at < STEPS:
        if at % 5 == 0:
            sgd.save_checkpoint(model=model.module.state_dict(), at=at,
                                optimizer=optimizer.state_dict(), torch=torch.get_rng_state(),
                                random=random.getstate(), numpy=numpy.random.get_state())
        x = torch.randn(64, 784) * random.random() + numpy.random.rand()
        models.step(model, optimizer, x, torch.randint(10, (64,)))
        at += 1
        if config["mark"] and at == KILL_AT and sgd.world_rank() == 1 and \
                not os.path.exists(config["mark"]):
            open(config["mark"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
    digest = hashlib.sha256()
    for tensor in model.module.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


with tempfile.TemporaryDirectory() as d, \
        Trainer(backend="torch", num_workers=(2, 2)) as trainer:
    for mark in ("", "", f"{d}/killed"):
        print(*trainer.run(train, {"mark": mark}))
    with open(f"{d}/killed"):
        pass  # it has happened

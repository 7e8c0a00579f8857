# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 293-308: a checkpoint per epoch, and as many workers as there is room for.
# files=False|True: half of them each way.
from math import inf

import torch

import manta as ray
from manta.sgd import Trainer

gpus_per_worker, cpus_per_worker = 0, 0.25
config = {"num_epochs": range(4)}


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def validate(model):
    assert model.weight.isfinite().all()


def train_func(*args):
    state = ray.sgd.load_checkpoint()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # eventually, optional:
    for epoch in config["num_epochs"]:
        train(model, optimizer)
        # optional, eventually: ray.sgd.report(...)
        ray.sgd.save_checkpoint((model, optimizer, epoch), files=epoch % 2 == 1)
        validate(model)
    return model

trainer = Trainer(gpus_per_worker=gpus_per_worker, cpus_per_worker=cpus_per_worker,
                  num_workers=(4, inf))
results = trainer.run(train_func)
state = trainer.get_last_checkpoint()

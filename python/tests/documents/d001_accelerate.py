# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 317-326: the device, DistributedDataParallel and mixed precision in a line.
import torch
from torch.nn import Linear as Net

import manta as ray
from manta.sgd import Trainer


def train(model, optimizer, train_loader):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


losses = []
train_loader = [(torch.full((4, 1), float(i)), torch.full((4, 1), 2.0 * i)) for i in range(3)]


def train_func(config):
    model = Net(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.nn.MSELoss()

    model = ray.sgd.accelerate(model, loss, mixed_precision=True)
    for _ in config["epoch"]:
        train(model, optimizer, train_loader)
    return model, losses


trainer = Trainer(num_workers=2)
results = trainer.run(train_func, config={"epoch": range(10)})

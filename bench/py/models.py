# SPDX-License-Identifier: Apache-2.0
"""What is trained: the same in every system. Imported where torch is wanted, in workers."""

from __future__ import annotations

import time
from typing import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                         nn.Linear(512, 10))


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.around = nn.Identity() if into == out and stride == 1 else nn.Sequential(
            nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.around(x))


def resnet18() -> nn.Module:
    """As it was published, pooling before the blocks and all: 11 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
                               nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    into = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(into, out, stride), Block(out, out, 1)]
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


# name: (model, shape of an example)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (784,)), "resnet18": (resnet18, (3, 32, 32))}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor,
         y: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def steps(name: str, batch: int, wrap: Callable[[nn.Module], nn.Module]) -> Iterator[float]:
    """Trains without end; gives the milliseconds of each step."""
    make, shape = MODELS[name]
    model = wrap(make())
    optimizer = sgd(model)
    x, y = torch.randn(batch, *shape), torch.randint(10, (batch,))
    while True:
        start = time.perf_counter_ns()
        step(model, optimizer, x, y)
        yield (time.perf_counter_ns() - start) / 1e6


def first_step() -> int:
    """When the first step of the perceptron was done."""
    next(steps("mlp", 64, lambda model: model))
    return time.monotonic_ns()

# SPDX-License-Identifier: Apache-2.0
"""Operators that the tests of generation 1 share: a line to be learned, y = 3 x."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from manta.util.sgd import TrainingOperator


def line(rows: int = 32) -> TensorDataset:
    x = torch.linspace(-1, 1, rows).reshape(-1, 1)
    return TensorDataset(x, 3 * x)


def model_creator(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(1, 1)


def optimizer_creator(model: Any, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.1), momentum=0.5)


def data_creator(config: dict[str, Any]) -> tuple[Any, Any]:
    size = config.get("batch_size", 4)
    return DataLoader(line(), batch_size=size), DataLoader(line(16), batch_size=size)


class Line(TrainingOperator):
    """With a state of its own: how many passes it was validated in."""

    def setup(self, config: dict[str, Any]) -> None:
        model = model_creator(config)
        self.model, self.optimizer, self.criterion = self.register(
            models=model, optimizers=optimizer_creator(model, config),
            criterion=torch.nn.MSELoss())
        train, validation = data_creator(config)
        self.register_data(train_loader=train, validation_loader=validation)


class Mortal(Line):
    """Rank 1 dies in the batch config["die"], once: config["flag"] is the file that says so."""

    def train_batch(self, batch: Any, batch_info: Any = None) -> dict[str, Any]:
        flag = Path(self.config["flag"])
        last = self.config.get("rank", 1)
        if self.global_step == self.config["die"] and self.world_rank == last and (
                not flag.exists()):
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, batch_info)

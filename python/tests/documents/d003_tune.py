# SPDX-License-Identifier: Apache-2.0
# Document 003, lines 65-69: the tuning example that it includes, written anew from what the text
# says: PyTorchTrainable takes the arguments of PyTorchTrainer from tune.run(config=...).
import torch
from torch.utils.data import DataLoader, TensorDataset

from manta import tune
from manta.experimental.sgd import PyTorchTrainable


def model_creator(config):
    return torch.nn.Linear(1, 1)


def optimizer_creator(model, config):
    return torch.optim.SGD(model.parameters(), lr=config["lr"])


def data_creator(config):
    x = torch.linspace(-1, 1, 32).reshape(32, 1)
    return (DataLoader(TensorDataset(x, 2 * x + 5), batch_size=4),
            DataLoader(TensorDataset(x, 2 * x + 5), batch_size=4))


analysis = tune.run(
    PyTorchTrainable,
    num_samples=1,
    config={
        "model_creator": model_creator,
        "data_creator": data_creator,
        "optimizer_creator": optimizer_creator,
        "loss_creator": lambda config: torch.nn.MSELoss(),
        "num_workers": 2,
        "config": {"lr": tune.grid_search([0.01, 0.1])},
    },
    stop={"training_iteration": 2})

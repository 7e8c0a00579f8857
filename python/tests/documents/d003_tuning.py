# SPDX-License-Identifier: Apache-2.0
# Document 003, lines 65-69: the arguments of PyTorchTrainer are the config of PyTorchTrainable. The
# file that line 67 names, written anew from what the document says; its tune.run() is a loop here.
import torch
import torch.nn as nn

from manta.experimental.sgd.pytorch import PyTorchTrainable


class LinearDataset(torch.utils.data.Dataset):
    """y = a * x + b"""

    def __init__(self, a, b, size=64):
        self.x = torch.arange(0, 1, 1 / size)
        self.y = a * self.x + b

    def __getitem__(self, index):
        return self.x[index, None], self.y[index, None]

    def __len__(self):
        return len(self.x)


def model_creator(config):
    torch.manual_seed(0)
    return nn.Linear(1, 1)


def optimizer_creator(model, config):
    return torch.optim.SGD(model.parameters(), lr=config["lr"])


def data_creator(config):
    return LinearDataset(2, 5), LinearDataset(2, 5, size=16)


found = {}
for lr in (1e-3, 1e-1):
    config = {
        "model_creator": model_creator,
        "data_creator": data_creator,
        "optimizer_creator": optimizer_creator,
        "loss_creator": nn.MSELoss,
        "num_replicas": 2,
        "use_gpu": False,
        "batch_size": 16,
        "backend": "gloo",
        "config": {"lr": lr},
    }
    trial = PyTorchTrainable(config)
    while True:
        result = trial.train()
        if result["training_iteration"] == 2:
            break
    found[lr] = result["validation_loss"]
    trial.stop()

best = min(found, key=found.get)

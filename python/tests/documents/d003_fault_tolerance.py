# SPDX-License-Identifier: Apache-2.0
# Document 003, lines 8-51: PyTorchTrainer, max_retries, checkpoint="auto". A worker is killed in
# the second pass and in the fourth.
import os
import signal
import tempfile

import torch
import torch.nn as nn

from manta.experimental.sgd import PyTorchTrainer
from manta.util.sgd import TrainingOperator

N = 2
flags = tempfile.mkdtemp()


class LinearDataset(torch.utils.data.Dataset):
    def __init__(self, a, b, size=64):
        self.x = torch.arange(0, 10, 10 / size)
        self.y = a * self.x + b

    def __getitem__(self, index):
        return self.x[index, None], self.y[index, None]

    def __len__(self):
        return len(self.x)


class Preempted(TrainingOperator):
    def train_batch(self, batch, batch_info):
        flag = os.path.join(flags, str(self.global_step))
        if self.global_step in (5, 13) and self.world_rank == 1 and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, batch_info)


def model_creator(config):
    torch.manual_seed(0)
    return nn.Linear(1, 1)


def optimizer_creator(model, config):
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 1e-2))


def data_creator(config):
    return LinearDataset(2, 5), LinearDataset(2, 5, size=16)


trainer = PyTorchTrainer(model_creator, data_creator, optimizer_creator, nn.MSELoss,
                         training_operator_cls=Preempted, num_replicas=2, batch_size=16)

losses = []
for _ in range(2):
    losses.append(trainer.train(max_retries=N)["train_loss"])
for _ in range(2):
    losses.append(trainer.train(max_retries=N, checkpoint="auto")["train_loss"])

killed = sorted(map(int, os.listdir(flags)))
saved = torch.load(trainer.auto_checkpoint_path)
steps = trainer.apply_all_operators(lambda operator: operator.global_step)

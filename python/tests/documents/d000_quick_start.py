# SPDX-License-Identifier: Apache-2.0
# Document 000, lines 21-61: a function goes to two workers.
import torch
import torch.nn as nn
import torch.nn.functional as F

data = [torch.ones(4, 1) * i for i in range(3)]


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(1, 128)
        self.fc2 = nn.Linear(128, 1)

    def forward(self, x):
        x = self.fc1(x)
        x = F.relu(x)
        x = self.fc2(x)
        return x

def train_func(config):
    model = Net()
    for x in data:
        results = model(x)
    return results

from manta.util.sgd import Trainer

trainer = Trainer(num_workers=2)

results = trainer.run(train_func, config=None)
print(results)

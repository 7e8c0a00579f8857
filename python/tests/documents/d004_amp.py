# SPDX-License-Identifier: Apache-2.0
# Document 004, lines 395-420: mixed precision by three calls. `dataloader` is `data_loader`.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from manta import train
import manta.train.torch
from manta.air import ScalingConfig, session
from manta.train.torch import TorchTrainer

worker_batch_size = 8
labels = torch.arange(64) % 2
my_dataset = TensorDataset(torch.nn.functional.one_hot(labels, 4).float(), labels)
kinds = set()


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        out = self.layer(x)
        kinds.add(str(out.dtype))
        return out


def train_func():
    train.torch.accelerate(amp=True)

    model = NeuralNetwork()
    model = train.torch.prepare_model(model)

    data_loader = DataLoader(my_dataset, batch_size=worker_batch_size)
    data_loader = train.torch.prepare_data_loader(data_loader)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer = train.torch.prepare_optimizer(optimizer)

    model.train()
    for epoch in range(90):
        for images, targets in data_loader:
            optimizer.zero_grad()

            outputs = model(images)
            loss = torch.nn.functional.cross_entropy(outputs, targets)

            train.torch.backward(loss)
            optimizer.step()
        if epoch % 89 == 0:
            session.report({"loss": loss.item(), "kinds": sorted(kinds),
                            "weight": str(model.module.layer.weight.dtype)})

trainer = TorchTrainer(train_func, scaling_config=ScalingConfig(num_workers=2))
result = trainer.fit()

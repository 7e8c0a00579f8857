# SPDX-License-Identifier: Apache-2.0
# Document 004, lines 9-52: the torch quick start that it includes, written anew from what the text
# says of its five parts. The images are drawn at random around a picture for each class.
# --- the dataset and the model
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_dataset(n=256, classes=4):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    pictures = torch.rand(classes, 1, 28, 28, generator=g)
    return TensorDataset(pictures[labels] + 0.1 * torch.rand(n, 1, 28, 28, generator=g), labels)


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.layers = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, inputs):
        return self.layers(self.flatten(inputs))


# --- the single-worker training function
def train_func():
    num_epochs = 3
    batch_size = 16
    torch.manual_seed(0)

    dataloader = DataLoader(get_dataset(), batch_size=batch_size)
    model = NeuralNetwork()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(num_epochs):
        for inputs, labels in dataloader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch: {epoch}, loss: {loss.item()}")


# --- executed with
if __name__ == "__main__":
    train_func()

# --- converted to a distributed one
from manta import train
import manta.train.torch


def train_func_distributed():
    num_epochs = 3
    batch_size = 16
    torch.manual_seed(0)

    dataloader = DataLoader(get_dataset(), batch_size=batch_size, shuffle=True)
    dataloader = train.torch.prepare_data_loader(dataloader)
    model = train.torch.prepare_model(NeuralNetwork())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(num_epochs):
        if train.get_context().get_world_size() > 1:
            dataloader.sampler.set_epoch(epoch)
        for inputs, labels in dataloader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch: {epoch}, loss: {loss.item()}")
    train.report({"loss": loss.item(), "batches": len(dataloader), "wrapped": type(model).__name__,
                  "sampler": type(dataloader.sampler).__name__})


# --- and four workers
if __name__ == "__main__":
    from manta.air import ScalingConfig
    from manta.train.torch import TorchTrainer

    use_gpu = False
    trainer = TorchTrainer(
        train_func_distributed,
        scaling_config=ScalingConfig(num_workers=4, use_gpu=use_gpu))
    results = trainer.fit()

# SPDX-License-Identifier: Apache-2.0
# Document 004, lines 369-373: the TorchMetrics example that it includes, written anew from what the
# text says of it: the R2 score, and the mean train and validation loss, of all workers together.
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from manta import train
from manta.train import ScalingConfig
from manta.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def loaders(batch_size):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(120, 3, generator=g)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.01 * torch.randn(120, 1, generator=g)
    for part in (slice(0, 96), slice(96, 120)):
        yield prepare_data_loader(DataLoader(TensorDataset(x[part], y[part]), batch_size))


def train_func(config):
    train_loader, valid_loader = loaders(config["batch_size"])
    torch.manual_seed(0)
    model = prepare_model(nn.Linear(3, 1))
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])

    # Each of them sums up what all workers have seen.
    mean_train_loss = torchmetrics.MeanMetric()
    mean_valid_loss = torchmetrics.MeanMetric()
    r2 = torchmetrics.R2Score()

    for epoch in range(config["num_epochs"]):
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            mean_train_loss(loss.detach(), weight=len(x))
        with torch.no_grad():
            for x, y in valid_loader:
                output = model(x)
                mean_valid_loss(loss_fn(output, y), weight=len(x))
                r2(output.flatten(), y.flatten())
        own = mean_valid_loss.mean_value / mean_valid_loss.weight  # of this worker alone
        train.report({"mean_train_loss": mean_train_loss.compute().item(),
                      "mean_valid_loss": mean_valid_loss.compute().item(),
                      "r2_score": r2.compute().item(), "own_valid_loss": own.item(),
                      "weights": [p.tolist() for p in model.parameters()]})
        for metric in (mean_train_loss, mean_valid_loss, r2):
            metric.reset()


trainer = TorchTrainer(
    train_func,
    train_loop_config={"lr": 0.1, "batch_size": 8, "num_epochs": 3},
    scaling_config=ScalingConfig(num_workers=2),
)
result = trainer.fit()
print(result.metrics)

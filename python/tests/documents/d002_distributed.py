# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 22-48: DistributedDataParallel on four workers.
import torch
from torch.nn.parallel import DistributedDataParallel
from torch import nn, optim

NeuralNetwork = lambda: nn.Linear(1, 1)
input = torch.arange(4.0).reshape(4, 1)
labels = 3 * input

# Torch Example
def train_func_distributed():
    num_epochs = 3
    model = NeuralNetwork()
    model = DistributedDataParallel(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(num_epochs):
        output = model(input)
        loss = loss_fn(output, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch: {epoch}, loss: {loss.item()}")

from manta.sgd import Trainer

trainer = Trainer(backend="torch", num_workers=4)
trainer.start()
results = trainer.run(train_func_distributed)
trainer.shutdown()

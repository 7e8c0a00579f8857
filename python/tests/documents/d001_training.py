# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 33-58: one long-running execution. What torch.local_rank() and
# hvd.cross_rank() were to be is sgd.local_rank(); without a GPU the model stays where it is.
import torch
from torch.nn import Linear as Net
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import manta
import manta as ray
from manta.sgd import TorchConfig, Trainer

manta.init(num_cpus=16, num_gpus=16)


def train(model, optimizer, train_loader):
    device = next(model.parameters()).device
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        results.append(loss.item())


results = []


def train_func(config):  # user always needs "config"
    model = Net(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if torch.cuda.is_available():
        model.cuda()
    ddp = DistributedDataParallel(model)

    ray.sgd.local_rank()

    # Potentially add DistributedSampler here
    x = torch.linspace(-1, 1, 32).reshape(32, 1)
    dataset = TensorDataset(x, 3 * x)
    train_loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
    for _ in config["epoch"]:
        train(ddp, optimizer, train_loader)
    return model, results


trainer = Trainer(num_workers=8, cpus_per_worker=2, gpus_per_worker=2, backend_args=TorchConfig())
print(trainer)
# prints a table of resource usage

model, result = trainer.run(train_func, config={"epoch": range(5)})[0]
trainer.shutdown()

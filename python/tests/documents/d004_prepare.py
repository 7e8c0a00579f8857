# SPDX-License-Identifier: Apache-2.0
# Document 004, lines 80-185: a training function before and after the two diffs, the global batch
# size, and the trainers that run it. The lines that the diffs take out are train_func_before.
import torch
from torch.nn import Linear
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from manta.air import session
from manta import train
import manta.train.torch

worker_batch_size = 4
x = torch.linspace(-1, 1, 32).reshape(32, 1)
my_dataset = TensorDataset(x, 3 * x)


def NeuralNetwork():
    torch.manual_seed(0)
    return Linear(1, 1)


def fit(model, X, y):
    loss = torch.nn.functional.mse_loss(model(X), y)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad


def train_func_before():
    device = torch.device(f"cuda:{session.get_local_rank()}" if
        torch.cuda.is_available() else "cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(device)

    # Create model.
    model = NeuralNetwork()

    model = model.to(device)
    model = DistributedDataParallel(model,
        device_ids=[session.get_local_rank()] if torch.cuda.is_available() else None)

    data_loader = DataLoader(my_dataset, batch_size=worker_batch_size,
                             sampler=DistributedSampler(my_dataset, shuffle=False))

    for X, y in data_loader:
        X = X.to(device)
        y = y.to(device)
        fit(model, X, y)
    session.report({"weight": model.module.weight.item(), "batches": len(data_loader)})


def train_func():
    # Create model.
    model = NeuralNetwork()

    model = train.torch.prepare_model(model)

    data_loader = DataLoader(my_dataset, batch_size=worker_batch_size)
    data_loader = train.torch.prepare_data_loader(data_loader)

    for X, y in data_loader:
        fit(model, X, y)

    global_batch_size = worker_batch_size * session.get_world_size()
    session.report({"weight": model.module.weight.item(), "batches": len(data_loader),
                    "wrapped": type(model) is DistributedDataParallel,
                    "global_batch_size": global_batch_size})


from manta.air import ScalingConfig
from manta.train.torch import TorchTrainer
# For GPU Training, set `use_gpu` to True.
use_gpu = False
before = TorchTrainer(
    train_func_before,
    scaling_config=ScalingConfig(use_gpu=use_gpu, num_workers=2)
).fit()
trainer = TorchTrainer(
    train_func,
    scaling_config=ScalingConfig(use_gpu=use_gpu, num_workers=2)
)
after = trainer.fit()

from manta.air import ScalingConfig
from manta.train.torch import TorchTrainer, TorchConfig

trainer = TorchTrainer(
    train_func,
    torch_backend=TorchConfig(backend="gloo"),
    scaling_config=ScalingConfig(num_workers=2),
)

customized = trainer.fit()

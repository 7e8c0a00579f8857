# SPDX-License-Identifier: Apache-2.0
"""04_data_parallel - one model, two workers, each with its part of the data.

A network of one hidden layer learns sin(x), with PyTorch's DistributedDataParallel. With KILL=1 in
the environment rank 1 kills itself at step 150: the result is the same, to the last bit.
"""

import os
import signal

import torch
from torch.nn.parallel import DistributedDataParallel

from manta import sgd
from manta.sgd import SGDCallback, Trainer

RANKS, HIDDEN, SAMPLES, STEPS = 2, 16, 64, 500


def samples(step):
    """This rank's samples of this step, in -3 to 3: they follow from rank and step alone."""
    i = torch.arange(SAMPLES, dtype=torch.float32)
    return (torch.sin(step * 7919 + sgd.world_rank() * 104729 + i * 31) * 3).reshape(-1, 1)


def train(config):
    torch.manual_seed(0)  # the same weights on every rank
    net = torch.nn.Sequential(torch.nn.Linear(1, HIDDEN), torch.nn.Tanh(),
                              torch.nn.Linear(HIDDEN, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if state := sgd.load_checkpoint():
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    fresh = step == 0
    model = DistributedDataParallel(net)
    for step in range(step + 1, STEPS + 1):
        x = samples(step)
        loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()  # now the gradients are the mean of all ranks
        if config["kill"] and step == 150 and sgd.world_rank() == 1 and fresh:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        sgd.report(step=step, loss=loss.item())
        if step % 20 == 0:
            sgd.save_checkpoint(step=step, net=net.state_dict(), optimizer=optimizer.state_dict())
    return net[2].weight[0, 1].item()


class Show(SGDCallback):
    def handle_result(self, results, iteration, rewound_to=None):
        if rewound_to is not None:
            print(f"continuing from step {rewound_to}")
        if iteration % 100 == 0:
            print(f"step {iteration}  loss {sum(row['loss'] for row in results) / RANKS:.6f}")


if __name__ == "__main__":
    # (RANKS, RANKS): never with fewer, or the sums would have other last bits.
    with Trainer(backend="torch", num_workers=(RANKS, RANKS), callbacks=[Show()]) as trainer:
        ends = trainer.run(train, config={"kill": "KILL" in os.environ})
    for rank, end in enumerate(ends):
        print(f"rank {rank} ends with w2[1] = {end:.9g}")

# SPDX-License-Identifier: Apache-2.0
"""05_train_from_csv - a folder of CSV files, two workers, each row once in every epoch.

A linear model learns price = 3 size - 2 age + 5 from rows that are shuffled anew in each epoch.
Rows without a price are filtered out where they are parsed. The position in the data is a part of
each checkpoint: with KILL=1 in the environment rank 1 kills itself in the middle of the second
epoch, and the result is the same, to the last bit.
"""

import os
import signal
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from manta import data, sgd
from manta.data import col
from manta.sgd import SGDCallback, Trainer

RANKS, FILES, ROWS, EPOCHS, BATCH, EVERY = 2, 4, 1000, 3, 32, 10  # BATCH: of each rank


def learn(w, x, y):
    """One step over the parts of all ranks: sums, so that it does not matter how a batch is
    divided. Returns how many rows it had."""
    x = torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)
    off = x @ w - y.double()
    total = torch.cat([2 * x.T @ off, torch.tensor([[float(len(x))]], dtype=torch.float64)])
    dist.all_reduce(total)
    w -= 0.3 * total[:-1] / total[-1]
    return int(total[-1].item())


def train(config):
    state = sgd.load_checkpoint()
    fresh = state is None
    if fresh:
        state = {"w": torch.zeros(3, 1, dtype=torch.float64), "step": 0, "rows": 0, "epoch": 0}
    elif sgd.world_rank() == 0:
        print(f"continuing from step {state['step']}")
    w, step, rows = state["w"].clone(), state["step"], state["rows"]
    shard = sgd.get_data_shard()
    for epoch in range(state["epoch"], EPOCHS):
        for x, y in shard.to_torch(label_column="price", feature_columns=["size", "age"],
                                   batch_size=BATCH):
            rows += learn(w, x, y)
            step += 1
            if step % EVERY == 0:
                sgd.save_checkpoint(w=w, step=step, rows=rows, epoch=epoch)
            if config["kill"] and fresh and step == 85 and sgd.world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        sgd.report(epoch=epoch, rows=rows, size=w[0].item(), age=w[1].item(), one=w[2].item())
        rows = 0
    return w[2].item()


class Show(SGDCallback):
    def handle_result(self, results):
        row = results[0]
        print(f"epoch {row['epoch']}  {row['rows']} rows  price = {row['size']:.3f} size "
              f"{row['age']:+.3f} age {row['one']:+.3f}")


def write_file(folder, number):
    """Every tenth row has no price."""
    with open(Path(folder, f"part-{number}.csv"), "w") as f:
        f.write("size,age,price\n")
        for i in range(ROWS):
            size, age = (number * ROWS + i) * 7919 % 1000 / 1000, i * 104729 % 1000 / 1000
            price = "" if i % 10 == 9 else f"{3 * size - 2 * age + 5:.3f}"
            f.write(f"{size:.3f},{age:.3f},{price}\n")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            write_file(folder, number)
        known = data.read_csv(folder).filter(~col("price").is_null()).random_shuffle(seed=42)
        with Trainer("torch", num_workers=(RANKS, RANKS), callbacks=[Show()]) as trainer:
            ends = trainer.run(train, {"kill": "KILL" in os.environ}, dataset=known)
    for rank, end in enumerate(ends):
        print(f"rank {rank} ends with {end:.17g}")


if __name__ == "__main__":
    main()

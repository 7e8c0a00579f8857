# SPDX-License-Identifier: Apache-2.0
# Document 000, lines 136-155: a dataset, of which each worker gets a shard. The file has a row of
# each class; filter() keeps those whose first column is not negative.
import csv
import tempfile
from pathlib import Path

import torch

import manta as ray
from manta.sgd import Trainer

path = Path(tempfile.mkdtemp(), "rows.csv")
with open(path, "w", newline="") as file:
    csv.writer(file).writerows([("a", "b", "label"),
                                *((i - 100, i % 7, float(i % 2)) for i in range(1100))])

model = torch.nn.Linear(2, 1)

def train_func(config):
    batch_size = config["worker_batch_size"]
    data_shard = ray.sgd.get_data_shard()
    dataloader = data_shard.to_torch(batch_size=batch_size)

    rows, largest = 0, 0
    for x, y in dataloader:
        output = model(x)
        assert output.shape == y.shape == (len(x), 1) and x[:, 0].min() >= 0
        rows, largest = rows + len(x), max(largest, len(x))

    return model, rows, largest

trainer = Trainer(num_workers=8, backend="torch")
dataset = ray.data.read_csv(str(path)).filter(ray.data.col("a") >= 0).pipeline(length=50)

result = trainer.run(
    train_func,
    config={"worker_batch_size": 64},
    dataset=dataset)

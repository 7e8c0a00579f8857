# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 88-105: the same function with a dataset in a worker, and with a list in plain
# code. `ray.dataset` is a dataset of numbers, and filter() keeps the even ones.
import manta as ray
from manta.sgd import Trainer


def get_dataset():
    return [(i, i) for i in range(16)]


# Preferred API
def train_func(config):
    batch_size = config["batch_size"]
    if ray.sgd.in_worker():
        dataloader = ray.sgd.get_dataset().get_split().to_torch(batch_size=batch_size)
    else:
        dataloader = get_dataset()
    model = [y.flatten().tolist() if hasattr(y, "flatten") else y for x, y in dataloader]
    return model

trainer = Trainer(num_workers=8, backend="torch")
rows = [{"x": float(i), "y": i} for i in range(64)]
dataset = ray.data.from_items(rows).filter(lambda row: row["y"] % 2 == 0).pipeline(length=50)
split = trainer.run(train_func, config={"batch_size": 2}, dataset=dataset)
whole = train_func({"batch_size": 2})

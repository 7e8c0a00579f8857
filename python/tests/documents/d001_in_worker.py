# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 91-103: the same function in plain code and in a worker. The dataset
# is a list here, and get_split a slice of it.
import manta as ray
from manta.sgd import Trainer


def get_dataset():
    return list(range(16))


# Preferred API
def train_func(config):
    batch_size = config["batch_size"]
    if ray.sgd.in_worker():
        dataloader = get_dataset()[ray.sgd.world_rank()::ray.sgd.world_size()]
    else:
        dataloader = get_dataset()
    model = [dataloader[i:i + batch_size] for i in range(0, len(dataloader), batch_size)]
    return model

trainer = Trainer(num_workers=8, backend="torch")
split = trainer.run(train_func, config={"batch_size": 2})
whole = train_func({"batch_size": 2})

# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 199-225: a trainer with a dataset as a trainable. `torch.rank()` is
# sgd.world_rank(); tune.randint(1, 2, 3) means a choice, and workers have no GPU here.
import torch

import manta as ray
from manta import tune
from manta.sgd import Trainer

epochs = range(2)


def training_func(config):
    model = torch.nn.Linear(1, 1)
    if ray.sgd.in_worker():
        dataloader = ray.sgd.get_dataset()\
            .get_shard(ray.sgd.world_rank())\
            .to_torch(batch_size=config["batch_size"])
    else:
        dataloader = [(torch.ones(1, 1), torch.ones(1, 1))]

    for i in epochs:
        batches = sum(1 for x, y in dataloader)
        ray.sgd.report(loss=config["lr"], batches=batches)  # use same intermediate reporting API
    return model  # this is ignored in Tune?

# Declare the specification for training.
trainer = Trainer(workers=2)
dataset = ray.data.from_items([{"x": float(i), "y": 2.0 * i} for i in range(12)]).pipeline(length=4)


# Convert this to a trainable.

# trainer.run(train_func, config={}, dataset=dataset)

trainable = trainer.to_trainable(training_func, dataset=dataset)
analysis = tune.run(trainable, config={
    "lr": tune.uniform(), "batch_size": tune.choice([1, 2, 3])}, num_samples=12)

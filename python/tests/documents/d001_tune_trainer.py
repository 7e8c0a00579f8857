# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 229-247: a trial that makes its own trainer, and its own dataset.
import manta as ray
from manta import tune
from manta.sgd import Trainer

gpu_per_worker = 0


def regular_training_code():
    for x, y in ray.sgd.get_data_shard().to_torch(batch_size=2):
        ray.sgd.report(total=float(x.sum()))


def tune_trainable(config):
    rows = [{"x": config["args"], "y": 0.0} for _ in range(8)]
    dataset = ray.data.from_items(rows).pipeline(length=4)  # tune parameters of dataset
    trainer = Trainer(gpu_per_worker=gpu_per_worker, workers=2)
    generator = trainer.run_generator(regular_training_code, dataset=dataset)
    for result in generator:
        tune.report(**result)

analysis = tune.run(tune_trainable, config={"args": tune.grid_search([1.0, 2.0])},
                    resources_per_trial={"CPU": 1})

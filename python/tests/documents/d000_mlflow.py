# SPDX-License-Identifier: Apache-2.0
# Document 000, lines 169-183: results to MLflow. A comma is missing in the document; the tracker is
# a folder, MLFLOW_TRACKING_URI.
import manta as ray
from manta import sgd
from manta.sgd import Trainer

trainer = Trainer(num_workers=2)
dataset = ray.data.from_items([{"x": float(i), "y": 2.0 * i} for i in range(16)])


def process(x):
    return {"loss": float(x.sum())}


def train_func(config):
    # do something
    for x, y in sgd.get_data_shard().to_torch(batch_size=config["worker_batch_size"]):
        result = process(x)
        ray.sgd.report(**result)


result = trainer.run(
    train_func,
    config={"worker_batch_size": 4},
    callbacks=[sgd.MlflowCallback()],
    dataset=dataset)

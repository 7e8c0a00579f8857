# SPDX-License-Identifier: Apache-2.0
# Document 002, lines 154-177: TensorFlow in one function. fit() with a strategy is tf_keras's.
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
MultiWorkerMirroredStrategy = tf.distribute.MultiWorkerMirroredStrategy  # no module, as of 2.16

from manta.sgd import Trainer
from manta import sgd


def data_creator(config):
   x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
   dataset = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).batch(8)
   return dataset, dataset


def model_creator(config):
   model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
   model.compile(optimizer=tf.keras.optimizers.SGD(config["lr"]), loss="mse")
   return model


def train_func(config):
   strategy = MultiWorkerMirroredStrategy()
   train_dataset, val_dataset = data_creator(config)
   with strategy.scope():
       model = model_creator(config)

   for epoch_idx in range(config["num_epochs"]):
       model.fit(train_dataset)

   if sgd.world_rank() == 0:
       return model
   else:
       return None

trainer = Trainer(backend="tensorflow", num_workers=4, config={"num_epochs": 3, "lr": 0.2})
trainer.start()
model = trainer.run(train_func)[0]

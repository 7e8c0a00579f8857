# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 159-181: results by callbacks, and by a generator.
import manta as ray
from manta.sgd import SGDCallback, Trainer


class Collect(SGDCallback):
    seen = []

    def handle_result(self, results, **info):
        self.seen.append(results)


def train():
    return {"loss": 0.5}


def validate(metrics):
    return {**metrics, "accuracy": 0.75}


def do_stuff(result):
    stuff.append(result["accuracy"])


stuff = []
config = {"epochs": range(3)}
trainer = Trainer(num_workers=2)


def train_func(config):
    model = "a model"
    for _ in config["epochs"]:
        metrics = train()
        metrics = validate(metrics)
        ray.sgd.report(**metrics)
    return model

# Higher level API
results = trainer.run(train_func, config=config, callbacks=[Collect()])

# Lower-level generator API
generator = trainer.run_generator(train_func, config=config)

for result in generator:
    do_stuff(result)

assert generator.is_finished()
model = generator.get_returns()

# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 252-269: the pairs of a cross validation, all in one run.
import manta as ray
from manta import sgd
from manta.sgd import SGDCallback, Trainer


class Collect(SGDCallback):
    seen = []

    def handle_result(self, results, **info):
        self.seen.append(results[0])


dataset = ray.data.from_items([{"x": float(i), "y": float(i)} for i in range(12)])
trainer = Trainer(num_workers=2)

# Inside Tune

split1, split2, split3 = dataset.pipeline(length=4).to_cv()

def training_func(config):
    model = "a model"
    for index, (train_set, val_set) in enumerate(ray.sgd.get_datasets()):
        dataloader = train_set.get_split().to_torch()
        for x, y in dataloader:
            loss = float(y.sum())
            sgd.report(cv=index, mean_loss=loss)
    return model

results = trainer.run(training_func, dataset=(split1, split2, split3), callbacks=[Collect()])

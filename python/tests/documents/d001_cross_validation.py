# SPDX-License-Identifier: Apache-2.0
# Document 001, lines 109-116: a run for each part of each of five splits.
import manta as ray
from manta.sgd import Trainer

trainer = Trainer(num_workers=2)


def train_func():
    return [y for x, ys in ray.sgd.get_data_shard().to_torch(batch_size=4)
            for y in ys.flatten().tolist()]


cv_splits = ray.data.from_items([{"x": 0.0, "y": i} for i in range(20)]).to_cv(splits=5)

results = []
for train_set, val_set in cv_splits:
    result = trainer.run(train_func, dataset=train_set)
    results.append(sorted(result[0] + result[1]))
    result = trainer.run(train_func, dataset=val_set)
    results.append(sorted(result[0] + result[1]))

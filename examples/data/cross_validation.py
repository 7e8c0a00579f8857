# SPDX-License-Identifier: Apache-2.0
"""Cross validation: five splits, all in one run of two workers.

    python cross_validation.py
"""

from manta import sgd
from manta.data import from_items
from manta.sgd import Trainer


def mean_error(slope, rows):
    return sum((slope * r["x"] - r["y"]) ** 2 for r in rows) / max(len(rows), 1)


def train():
    errors = []
    for number, (training, validation) in enumerate(sgd.get_datasets()):
        slope = 0.0
        for epoch in range(5):
            for batch in training.get_shard().iter_batches(batch_size=8):
                gradient = (2 * (slope * batch["x"] - batch["y"]) * batch["x"]).mean()
                slope -= 0.05 * float(gradient)
        errors.append(mean_error(slope, list(validation.get_shard().iter_rows())))
        sgd.report(split=number, error=errors[-1])
    return errors


def main():
    dataset = from_items([{"x": i % 10 / 5, "y": 2 * (i % 10 / 5) + (i % 3 - 1) / 10}
                          for i in range(200)])
    with Trainer(None, num_workers=2) as trainer:
        results = trainer.run(train, dataset=dataset.to_cv(splits=5, shuffle=True, seed=1))
    for number, errors in enumerate(zip(*results)):
        print(f"split {number}: mean squared error {sum(errors) / len(errors):.3f}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The same as main.c: the minimum of a function of two numbers, by trials that learn."""

from typing import Any

from manta import tune
from manta.tune.schedulers import ASHAScheduler


def train(config: dict[str, Any]) -> None:
    for step in range(1, 11):
        tune.report(loss=(config["x"] - 1) ** 2 + (config["y"] + 2) ** 2 + 1 / step)


if __name__ == "__main__":
    analysis = tune.run(train, {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)},
                        num_samples=40, metric="loss", mode="min", search_alg="tpe",
                        scheduler=ASHAScheduler(max_t=10), seed=1)
    print({k: round(v, 2) for k, v in analysis.best_config.items()})

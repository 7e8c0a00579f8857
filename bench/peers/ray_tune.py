# SPDX-License-Identifier: Apache-2.0
"""bench/peers/ray_tune.py TRIALS DIR - Ray Tune: a function that reports three times, two trials at
once. Prints trials_per_s, from the end of the second trial to the end of the last."""

from __future__ import annotations

import sys
import time
from typing import Any

import ray
from ray import tune

TRIALS, WHERE = int(sys.argv[1]), sys.argv[2]


def function(config: dict[str, float]) -> None:
    for i in (1, 2, 3):
        tune.report({"loss": config["x"] / i})


class Ends(tune.Callback):
    at: list[float] = []

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.at.append(time.perf_counter())


ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
tune.Tuner(function, param_space={"x": tune.uniform(0, 1)},
           tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=TRIALS,
                                       max_concurrent_trials=2),
           run_config=tune.RunConfig(storage_path=WHERE, verbose=0, callbacks=[Ends()])).fit()
print("trials_per_s", (TRIALS - 2) / (Ends.at[-1] - Ends.at[1]))
ray.shutdown()

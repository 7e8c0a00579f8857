# SPDX-License-Identifier: Apache-2.0
"""bench/py/trials.py plain|torch|reuse TRIALS DIR - tune.run of a function that reports three
times, two trials at once: trials/s from the end of the second one (both seats are warm) to the end
of the last; the rates of the first and the last thousand; the driver's memory."""

import resource
import sys
from pathlib import Path

from manta import tune

what, trials, where = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
part = min(1000, trials // 4)

if what == "torch":
    import torch

    def function(config):
        x = torch.tensor(config["x"])
        for i in (1, 2, 3):
            tune.report(loss=float(x / i))
else:
    def function(config):
        for i in (1, 2, 3):
            tune.report(loss=config["x"] / i)

done = tune.run(function, config={"x": tune.uniform(0, 1)}, num_samples=trials, metric="loss",
                mode="min", seed=1, max_concurrent_trials=2, reuse_actors=what == "reuse",
                local_dir=where, verbose=0)
mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
ended = sorted(done._tune.trial(i)["ended"] for i in range(trials))
if any(t.last_result["loss"] != t.config["x"] / 3 for t in done.trials[:100] if what != "torch"):
    sys.exit("a trial has another result")
print("trials_per_s", (trials - 2) / (ended[-1] - ended[1]))
print("first_per_s", part / (ended[part + 1] - ended[1]))
print("last_per_s", part / (ended[-1] - ended[-part - 1]))
print("driver_mb", mb)

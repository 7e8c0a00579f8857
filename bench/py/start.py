# SPDX-License-Identifier: Apache-2.0
"""bench/py/start.py SINCE WHAT [torch] - a fresh interpreter until WHAT on both of 2 workers.

SINCE: the monotonic clock before it was started, in ns. WHAT: `line`, the first of the train
function, or `step`, the first step done. torch: this program imports torch as well, as most do.
"""

import sys

if "torch" in sys.argv:
    import manta
    manta.prestart()
    import torch  # noqa: F401

import time

from manta.sgd import Trainer


def line() -> int:
    return time.monotonic_ns()


def step() -> int:
    import models
    return models.first_step()


with Trainer(backend="torch", num_workers=2) as trainer:
    when = max(trainer.run(step if sys.argv[2] == "step" else line))
print("start_ms", (when - int(sys.argv[1])) / 1e6)

# SPDX-License-Identifier: Apache-2.0
"""bench/py/fit.py SINCE - a fresh interpreter until TorchTrainer.fit() of a function that does
nothing has returned, 2 workers; and a second fit in the same driver.

SINCE: the monotonic clock before it was started, in ns.
"""

import sys
import time

from manta.air import ScalingConfig
from manta.train.torch import TorchTrainer


def nothing() -> None:
    pass


trainer = TorchTrainer(nothing, scaling_config=ScalingConfig(num_workers=2))
trainer.fit()
print("fit_ms", (time.monotonic_ns() - int(sys.argv[1])) / 1e6)
before = time.monotonic_ns()
trainer.fit()
print("again_ms", (time.monotonic_ns() - before) / 1e6)

# SPDX-License-Identifier: Apache-2.0
"""What workers are forked from imports the rest of torch beside the first workers. Later workers
are measured when that is done."""

import sys
import time

from manta.sgd import Trainer

LIMIT_S = 120


def is_warm() -> bool:
    return "torch._dynamo" in sys.modules


def wait() -> None:
    by = time.monotonic() + LIMIT_S
    with Trainer(backend="torch", num_workers=1) as first:  # the agent stays
        first.start()
        while time.monotonic() < by:
            with Trainer(backend="torch", num_workers=1) as trainer:
                if trainer.run(is_warm)[0]:
                    return
            time.sleep(0.5)
    sys.exit(f"new workers still had to import torch._dynamo after {LIMIT_S} s")

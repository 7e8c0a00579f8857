# SPDX-License-Identifier: Apache-2.0
"""01_hello - a function goes in, its results come out."""

import os

from manta import sgd
from manta.sgd import Trainer


def hello() -> int:
    """Runs once in every worker."""
    print(f"hello, this is process {os.getpid()}")
    return sgd.world_rank() ** 2


if __name__ == "__main__":
    # Without show_all_output only rank 0 is heard; backend=None: this needs no framework.
    with Trainer(backend=None, num_workers=4, show_all_output=True) as trainer:
        for rank, result in enumerate(trainer.run(hello)):
            print(f"rank {rank} returned {result}")

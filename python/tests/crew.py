# SPDX-License-Identifier: Apache-2.0
"""What the tests of the process group share: workers with PyTorch that check something."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import pytest

from manta.sgd import TorchConfig, Trainer

Check = Callable[[Any, int, int], Any]  # (torch, rank, size)


class Crew:
    """A trainer whose runs are checks that every rank makes. They are many and small, and each
    leaves nothing behind: the workers are kept."""

    def __init__(self, n: int, **config: Any):
        self.trainer = Trainer(TorchConfig(**config), num_workers=(n, n), max_retries=0, quiet=True,
                               keep_workers=True)

    def __call__(self, check: Check) -> list[Any]:
        def train() -> Any:
            import torch
            import torch.distributed as dist
            torch.manual_seed(7)
            return check(torch, dist.get_rank(), dist.get_world_size())
        return self.trainer.run(train)


def crew_of(n: int, **config: Any) -> Any:
    """A fixture: one crew for all tests of a file."""
    @pytest.fixture(scope="module")
    def crew() -> Iterator[Crew]:
        made = Crew(n, **config)
        yield made
        made.trainer.shutdown()
    return crew

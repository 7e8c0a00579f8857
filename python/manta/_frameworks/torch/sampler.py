# SPDX-License-Identifier: Apache-2.0
"""A rank's part of the samples, another order in every pass."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from manta._frameworks.torch import seed as _seed


class ShardSampler(DistributedSampler[Any]):  # type: ignore[misc]
    """A DistributedSampler that counts its passes by itself. set_epoch() still says which is next;
    the one after that follows it."""

    _begun = False

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._begun = False

    @property
    def next_epoch(self) -> int:
        return self.epoch + self._begun

    def __iter__(self) -> Iterator[Any]:
        self.epoch = self.next_epoch
        self._begun = True
        return iter(super().__iter__())


class PickSampler(ShardSampler):
    """A part of what a sampler of the user's picks. For the picking every rank is seeded alike:
    parts of different picks would overlap."""

    def __init__(self, source: Sampler[Any], **options: Any):
        super().__init__(source, shuffle=False, **options)
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        places = list(super().__iter__())
        with _seed.seeded(self.seed + self.epoch):
            picked = list(self.source)
        return iter([picked[i] for i in places])


def shard(loader: DataLoader[Any], rank: int, size: int, seed: int) -> ShardSampler:
    """What takes the place of the loader's sampler."""
    options: dict[str, Any] = {"num_replicas": size, "rank": rank, "seed": seed,
                               "drop_last": loader.drop_last}
    if type(loader.sampler) is SequentialSampler:
        return ShardSampler(loader.dataset, shuffle=False, **options)
    if _shuffles(loader.sampler):
        return ShardSampler(loader.dataset, shuffle=True, **options)
    if not isinstance(loader.sampler, Sized):
        raise TypeError(f"{type(loader.sampler).__name__} has no length, so ranks could not end "
                        f"together\nhint: add __len__, or pass add_dist_sampler=False")
    return PickSampler(loader.sampler, **options)


def _shuffles(sampler: Any) -> bool:
    """Everything once, in random order: what shuffle=True made."""
    return type(sampler) is RandomSampler and not sampler.replacement and \
        sampler.num_samples == len(sampler.data_source)

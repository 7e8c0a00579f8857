# SPDX-License-Identifier: Apache-2.0
"""A data loader of one rank among several: its part of the samples, on its device."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from manta import _manta
from manta._frameworks.torch import device as _device
from manta._frameworks.torch import nest, registry, sampler

_END = object()


class PreparedLoader(DataLoader[Any]):  # type: ignore[misc]
    """Stands for the loader it was made of: everything but the iteration is that one's. Not
    initialised as a DataLoader, so that whatever it does not have is looked up there."""

    def __init__(self, inner: Any, device: torch.device | None, ahead: bool):
        self.__dict__.update(_inner=inner, _device=device, _ahead=ahead)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Any:
        for hook in registry.current().on_pass:
            hook()
        batches = self._moved(iter(self._inner))
        return _alive(batches) if _manta.in_session() else batches

    def _moved(self, batches: Iterator[Any]) -> Iterator[Any]:
        if self._device is None or self._device.type == "cpu":
            return batches
        if self._ahead:
            return _read_ahead(batches, self._device)
        return (nest.to_device(batch, self._device) for batch in batches)

    # --- the order of samples ---------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Which pass is next. Needed only to begin elsewhere than at 0: they are counted."""
        for name in ("sampler", "batch_sampler"):
            part: Any = getattr(self._inner, name, None)
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def position(self) -> dict[str, Any]:
        """What decides the order of the next pass, besides the global random state."""
        own = getattr(self._inner, "sampler", None)
        generator = getattr(self._inner, "generator", None)
        return {"epoch": own.next_epoch if isinstance(own, sampler.ShardSampler) else None,
                "generator": None if generator is None else generator.get_state()}

    def load_position(self, position: dict[str, Any]) -> None:
        if position["epoch"] is not None:
            self.set_epoch(position["epoch"])
        if position["generator"] is not None:
            self._inner.generator.set_state(position["generator"].cpu())


def _alive(batches: Iterator[Any]) -> Iterator[Any]:
    """Every batch is a sign of life of this rank."""
    for batch in batches:
        _manta.heartbeat()
        yield batch


def _read_ahead(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    """The next batch is copied beside the work on this one, on a stream of its own. Only tensors
    are: what other objects hold could not be kept from being freed too early."""
    side = torch.cuda.Stream(device)

    def fetch() -> Any:
        batch = next(batches, _END)
        with torch.cuda.stream(side):
            return nest.change(batch, lambda t: nest.move(t, device), lambda other: other)

    def hand_out(batch: Any) -> Any:
        here = torch.cuda.current_stream(device)
        here.wait_stream(side)
        return nest.change(batch, lambda t: _used_on(t, here), lambda o: nest.move(o, device))

    coming = fetch()
    while coming is not _END:
        batch = hand_out(coming)
        coming = fetch()
        yield batch
        del batch


def _used_on(tensor: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    """Its memory is the side stream's: not to be used again before this one is done."""
    tensor.record_stream(stream)
    return tensor


# --- preparing ------------------------------------------------------------------------------------


def prepare_data_loader(data_loader: Any, add_dist_sampler: bool = True,
                        move_to_device: bool = True, auto_transfer: bool = True) -> Any:
    """A loader that gives this rank's part of the samples, on its device.

    The batch size is each worker's. Samples are shuffled if they were before, in an order that all
    ranks agree on and that changes with every pass. A sampler of the user's own is divided, too; an
    IterableDataset or a batch sampler is not, which a warning says. auto_transfer copies the next
    batch to the GPU while this one is used.
    """
    known = registry.current()
    if isinstance(data_loader, PreparedLoader):
        return data_loader
    rank, size = _device.world()
    if size > 1 and add_dist_sampler and _is_divisible(data_loader, size):
        data_loader = _divided(data_loader, rank, size, known.seed or 0)
    device = _device.get_device() if move_to_device else None
    made = PreparedLoader(data_loader, device, auto_transfer)
    known.add_loader(made)
    return made


def _is_divisible(loader: Any, size: int) -> bool:
    if not isinstance(loader, DataLoader):
        what = f"a {type(loader).__name__} is no DataLoader and"
    elif isinstance(loader.dataset, IterableDataset):
        what = "an IterableDataset"
    elif loader.batch_size is None and loader.batch_sampler is not None:
        if _knows_ranks(loader.batch_sampler):
            return False
        what = "a batch sampler of your own"
    else:
        return not isinstance(loader.sampler, DistributedSampler)
    registry.current().tell(f"{what} is not divided among workers: unless it does so itself, each "
                            f"of the {size} ranks reads every sample")
    return False


def _knows_ranks(batch_sampler: Any) -> bool:
    return isinstance(getattr(batch_sampler, "sampler", None), DistributedSampler) or \
        hasattr(batch_sampler, "num_replicas")


def _divided(loader: DataLoader[Any], rank: int, size: int, seed: int) -> DataLoader[Any]:
    """The same loader, whatever class and options it has, with another sampler. A DataLoader does
    not let these be set; a copy that has not run may have them."""
    made = copy.copy(loader)
    made.__dict__["_iterator"] = None  # persistent workers stay with the original
    made.__dict__["sampler"] = part = sampler.shard(loader, rank, size, seed)
    if loader.batch_sampler is not None:
        assert loader.batch_size is not None
        made.__dict__["batch_sampler"] = BatchSampler(part, loader.batch_size, loader.drop_last)
    return made

# SPDX-License-Identifier: Apache-2.0
"""An operator out of functions: one makes the model, one the optimizer, one the data."""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from manta._frameworks.torch.operator.operator import TrainingOperator


@dataclass(frozen=True)
class Creators:
    """The functions: model(config), optimizer(models, config), data(config), loss(config) or the
    class of a loss, scheduler(optimizers, config)."""
    model: Callable[..., Any]
    optimizer: Callable[..., Any]
    data: Callable[..., Any] | None = None
    loss: Any = None
    scheduler: Callable[..., Any] | None = None
    one_by_one: bool = True  # workers of a host call data() in turn
    loader: dict[str, Any] | None = None  # options of a DataLoader around a dataset

    def check(self) -> None:
        for name in ("model", "optimizer"):
            if not callable(given := getattr(self, name)):
                raise ValueError(f"{name}_creator must be a function, not {given!r}")


class CreatorOperator(TrainingOperator):
    """What from_creators() gives is a subclass of this one. It has one of each, and all of them:
    self.model is the first of self.models."""

    creators: Creators
    models: Any
    optimizers: Any
    schedulers: Any

    def setup(self, config: Any) -> None:
        make = self.creators
        loaders = self._loaders(config) if make.data is not None else (None, None)
        models = make.model(config)
        optimizers = make.optimizer(models, config)
        schedulers = None if make.scheduler is None else make.scheduler(optimizers, config)
        registered = list(self.register(models=models, optimizers=optimizers,
                                        criterion=self._loss(config), schedulers=schedulers))
        self.models, self.optimizers = registered[:2]
        self.model, self.optimizer = _first(self.models), _first(self.optimizers)
        if self._criterion is not None:
            self.criterion = self._criterion
        if schedulers is not None:
            self.schedulers = registered[-1]
            self.scheduler = _first(self.schedulers)
        self.register_data(train_loader=loaders[0], validation_loader=loaders[1])

    def _loss(self, config: Any) -> Any:
        make = self.creators.loss
        if inspect.isclass(make) and issubclass(make, torch.nn.modules.loss._Loss):
            return make()
        return None if make is None else make(config)

    def _loaders(self, config: Any) -> tuple[Any, Any]:
        """For training and for validation."""
        make = self.creators
        assert make.data is not None
        with _turn() if make.one_by_one else contextlib.nullcontext():
            made = make.data(config)
        made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if not 1 <= len(made) <= 2 or made[0] is None:
            raise ValueError(f"data_creator must return one or two loaders, not {made!r}")
        train, validation = (*made, None)[:2]
        return self._loader(train, shuffle=True), self._loader(validation, shuffle=False)

    def _loader(self, data: Any, shuffle: bool) -> Any:
        """A dataset in the place of a loader is read in batches."""
        if isinstance(data, DataLoader) or not isinstance(data, Dataset):
            return data
        options = {"shuffle": shuffle and not isinstance(data, IterableDataset),
                   **(self.creators.loader or {})}
        return DataLoader(data, **options)


def operator_of(creators: Creators, base: Any = None) -> type[CreatorOperator]:
    """base: a class with loops of its own, whose setup(), if it has one, finds everything made."""
    creators.check()
    if base is None or base is TrainingOperator:
        return type("CreatedOperator", (CreatorOperator,), {"creators": creators})
    space: dict[str, Any] = {"creators": creators}
    if not issubclass(base, CreatorOperator) and base.setup is not TrainingOperator.setup:
        def setup(self: Any, config: Any) -> None:
            CreatorOperator.setup(self, config)
            base.setup(self, config)
        space["setup"] = setup
    bases = (base,) if issubclass(base, CreatorOperator) else (base, CreatorOperator)
    return type(base.__name__, bases, space)


def _first(given: Any) -> Any:
    return given[0] if isinstance(given, (list, tuple)) else given


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """One process of this user and host after the other."""
    path = Path(tempfile.gettempdir(), f"manta-data-{os.getuid()}.lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)

# SPDX-License-Identifier: Apache-2.0
"""What programs for Ray Data say of where and how work is done. Nothing here changes anything: rows
are read and functions called where `manta.data` does it."""

from __future__ import annotations

from typing import Any, Self

from manta.data.dataset import Dataset

Datastream = DataIterator = DatasetPipeline = MaterializedDataset = Dataset


class _Settings:
    """Any attribute can be set, and those that nobody set are settings themselves."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.__dict__.update(settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = _Settings()
        return self.__dict__[name]

    def copy(self, **changes: Any) -> Self:
        return type(self)(**{**self.__dict__, **changes})


class DataContext(_Settings):
    """`DataContext.get_current().enable_progress_bars = False` and the like."""

    _current: DataContext | None = None

    @classmethod
    def get_current(cls) -> DataContext:
        DataContext._current = DataContext._current or DataContext()
        return DataContext._current


DatasetContext = DataContext


class ExecutionOptions(_Settings):
    pass


class ExecutionResources(_Settings):
    pass


class ActorPoolStrategy(_Settings):
    """`map_batches(…, compute=ActorPoolStrategy(size=2))`."""


class TaskPoolStrategy(_Settings):
    pass

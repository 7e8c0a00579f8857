# SPDX-License-Identifier: Apache-2.0
"""What this run has prepared. In a worker every run begins with an empty one; plain code, which has
no runs, has one that holds settings and no objects."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import torch

from manta._runtime import worker
from manta._runtime.job import Kind

if TYPE_CHECKING:
    from manta._runtime.job import Job
    from manta._frameworks.torch.amp import Amp
    from manta._frameworks.torch.loader import PreparedLoader


@dataclass
class Registry:
    keeps: bool = False  # objects too: there is a run, whose end lets go of them
    models: list[torch.nn.Module] = field(default_factory=list)  # without what is wrapped around
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    loaders: list[PreparedLoader] = field(default_factory=list)
    precision: torch.dtype | None = None  # that was asked for; a CPU may not be able to
    amp: Amp | None = None
    seed: int | None = None  # of enable_reproducibility
    replaced: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # weights, by FSDP's pieces
    positions: list[dict[str, Any]] = field(default_factory=list)  # of loaders yet to be prepared
    on_pass: list[Callable[[], None]] = field(default_factory=list)  # before each over a loader
    at_end: list[Callable[[], None]] = field(default_factory=list)  # undoes what was set
    told: set[str] = field(default_factory=set)

    def add_model(self, model: torch.nn.Module) -> None:
        self._add(self.models, model)

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._add(self.optimizers, optimizer)

    def add_loader(self, loader: PreparedLoader) -> None:
        """A loader that is prepared after set_rng_state() goes on from its position, too."""
        if not self.keeps:
            return
        self._add(self.loaders, loader)
        at = len(self.loaders) - 1
        if at < len(self.positions):
            loader.load_position(self.positions[at])

    def _add(self, known: list[Any], o: Any) -> None:
        if self.keeps and not any(o is other for other in known):
            known.append(o)

    def tell(self, text: str) -> None:
        """One warning a run, whatever the filters say about repeated ones."""
        if text not in self.told:
            self.told.add(text)
            warnings.warn(text, stacklevel=4)

    def end(self) -> None:
        while self.at_end:
            self.at_end.pop()()


_registry = Registry()
_owner: Job | None = None  # the run it belongs to


def current() -> Registry:
    """The one of this run. Calls between runs share it, as the class API needs."""
    global _owner
    job = worker.job
    if job is not None and job is not _owner and job.kind is Kind.RUN:
        clear()
        _registry.keeps = True
        _owner = job
    return _registry


def clear() -> None:
    """Forgets everything: at the end of a run, so that its models go."""
    global _registry, _owner
    _registry.end()
    _registry, _owner = Registry(), None

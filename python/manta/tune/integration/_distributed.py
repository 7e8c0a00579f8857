# SPDX-License-Identifier: Apache-2.0
"""A function of several workers as one thing to tune, in the words of the first versions of the
API."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from manta._front import session as _session
from manta._front.request import arguments_of
from manta._front.trainer import Trainer
from manta._front.tuned import TunedRun
from manta.tune import _session as _trial
from manta.tune._trainable import takes_directory

_ELSEWHERE = {
    "num_workers_per_host": "workers are placed by the resources that they need",
    "num_workers_per_node": "workers are placed by the resources that they need",
    "num_hosts": "num_workers counts the workers of all hosts",
    "memory_per_worker": "a worker's memory is not limited",
    "object_store_memory_per_worker": "there is no object store",
    "timeout_s": "a worker that is lost is known at once",
    "replicate_pem": "hosts are reached by ssh as it is set up"}


def trainable(backend: Any, function: Callable[..., Any], num_workers: int, cpus: float,
              gpus: float, others: dict[str, Any]) -> TunedRun:
    """What tune.run takes: each trial has so many workers, who all call the function."""
    for name in others:
        if name not in _ELSEWHERE:
            raise TypeError(f"DistributedTrainableCreator takes no {name}")
    told = [f"{name}: {_ELSEWHERE[name]}" for name, value in others.items() if value]
    if told:
        import warnings
        warnings.warn("; ".join(told), stacklevel=3)
    if not takes_directory(function):
        arguments_of(function, {})
    trainer = Trainer(backend, num_workers, gpus > 0, cpus_per_worker=cpus,
                      gpus_per_worker=gpus or None)
    return TunedRun(function, trainer._setting, trainer._native)


@contextlib.contextmanager
def distributed_checkpoint_dir(step: int | None = None, disable: bool = False) -> Iterator[str]:
    """tune.checkpoint_dir() of rank 0; on other ranks, and with disable, a directory that is
    removed with what is put there."""
    if disable or _session.world_rank() != 0:
        with tempfile.TemporaryDirectory() as nowhere:
            yield nowhere
        return
    with _trial.checkpoint_dir(step) as path:
        yield path


def is_distributed_trainable() -> bool:
    """Whether this is a worker of a trial that has several."""
    return _session.in_worker() and _session.world_size() > 1

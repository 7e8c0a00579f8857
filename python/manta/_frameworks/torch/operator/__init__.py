# SPDX-License-Identifier: Apache-2.0
"""Operators: a class with the model, the data and the loops over them, of which every worker has an
instance. `runner` is what a trainer calls there."""

from __future__ import annotations

from typing import Any

import torch

from manta._frameworks.torch.operator.creators import CreatorOperator, Creators, operator_of
from manta._frameworks.torch.operator.operator import TrainingOperator
from manta._frameworks.torch.operator.runner import Runner, read, read_file, write

__all__ = ["CreatorOperator", "Creators", "Runner", "TrainingOperator", "checked", "gpus_for",
           "operator_of", "read", "read_file", "write"]


def checked(operator_cls: Any) -> type[TrainingOperator]:
    """The argument training_operator_cls."""
    if not isinstance(operator_cls, type) or not issubclass(operator_cls, TrainingOperator):
        raise ValueError(f"training_operator_cls must be a subclass of TrainingOperator, not "
                         f"{operator_cls!r}\nhint: TrainingOperator.from_creators(…) makes one of "
                         f"functions")
    return operator_cls


def gpus_for(workers: int) -> bool:
    """Whether this host has a GPU for each of so many."""
    return bool(torch.cuda.device_count() >= workers)

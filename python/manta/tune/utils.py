# SPDX-License-Identifier: Apache-2.0
"""Small helpers of programs."""

from __future__ import annotations

import tempfile
from typing import Any, NoReturn

from manta._front import refuse as _refuse

__all__ = ["validate_save_restore"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def validate_save_restore(trainable_cls: Any, config: dict[str, Any] | None = None,
                          num_gpus: int = 0, use_object_store: bool = False) -> bool:
    """Whether a class goes on after restore() where save() left it; an error if it does not. GPUs
    and an object store are Ray's: the class is called in this process."""
    with tempfile.TemporaryDirectory() as where:
        first = trainable_cls(config, logdir=where)
        second = trainable_cls(config, logdir=where)
        try:
            for _ in range(3):
                before = first.train()
            second.restore(first.save(where))
            after = second.train()["training_iteration"]
            if after != before["training_iteration"] + 1:
                raise ValueError(f"{trainable_cls.__name__} is at iteration {after} after restore("
                                 f"), not at {before['training_iteration'] + 1}")
        finally:
            first.stop()
            second.stop()
    return True


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

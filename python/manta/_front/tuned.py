# SPDX-License-Identifier: Apache-2.0
"""A train function with the trainer that runs it, as one thing to tune: each trial is a whole
distributed run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manta._runtime import job as _job


class TunedRun:
    """What Trainer.to_tune_trainable() gives. The trainer's workers are not used: every trial has
    its own, with the same resources."""

    def __init__(self, function: Callable[..., Any], setting: _job.Setting,
                 native: dict[str, Any], dataset: Any = None):
        self.function, self._setting, self._native = function, setting, native
        self.dataset = dataset

    def job(self, wrap: Callable[[Callable[..., Any]], Callable[[], Any]]) -> _job.Job:
        """What the workers of a trial call. The checkpoints that they load are the experiment's."""
        return _job.Job(self._setting, wrap(self.function), trust=True, datasets=self.dataset)

    def native(self) -> dict[str, Any]:
        """The trainer of one trial, for libmanta. The tuner tries again what fails."""
        return {**self._native, "max_retries": -2, "name": None, "logdir": None}

    def __call__(self, config: Any) -> Any:
        raise TypeError("a trainable is run by tune.run(trainable, config={…})")

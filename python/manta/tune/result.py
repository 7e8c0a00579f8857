# SPDX-License-Identifier: Apache-2.0
"""Names of entries of a report, as programs spell them."""

from __future__ import annotations

from typing import NoReturn

from manta._front import refuse as _refuse

__all__ = ["DEFAULT_METRIC", "DONE", "SHOULD_CHECKPOINT", "TIME_THIS_ITER_S", "TIME_TOTAL_S",
           "TRAINING_ITERATION", "TRIAL_ID"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told

DEFAULT_METRIC = "_metric"  # of a report that is one number
DONE = "done"  # of step(): that was the last
SHOULD_CHECKPOINT = "should_checkpoint"  # of step(): save now
TIME_THIS_ITER_S, TIME_TOTAL_S = "time_this_iter_s", "time_total_s"
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

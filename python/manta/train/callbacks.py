# SPDX-License-Identifier: Apache-2.0
"""The callbacks of manta.sgd, by the path of Ray Train."""

from __future__ import annotations

from typing import NoReturn

from manta._front import refuse as _refuse
from manta._front.callbacks import (PrintCallback, ProgressCallback, SGDCallback,
                                    TrainingCallback)
from manta._front.sinks import (CSVCallback, CSVLoggerCallback, JsonCallback, JsonLoggerCallback,
                                TBXLoggerCallback, TensorboardCallback)
from manta._front.trackers import (MLflowLoggerCallback, MlflowCallback, WandbCallback,
                                   WandbLoggerCallback)

__all__ = ["CSVCallback", "CSVLoggerCallback", "JsonCallback", "JsonLoggerCallback",
           "MLflowLoggerCallback", "MlflowCallback", "PrintCallback", "ProgressCallback",
           "SGDCallback", "TBXLoggerCallback", "TensorboardCallback", "TrainingCallback",
           "WandbCallback", "WandbLoggerCallback"]
__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

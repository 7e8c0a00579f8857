# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Keras's fit(), by the path of Ray AIR. To import this imports TensorFlow."""

from typing import NoReturn

from manta._frameworks.tensorflow.keras import ReportCheckpointCallback
from manta._front import refuse as _refuse

__all__ = ["ReportCheckpointCallback"]
__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

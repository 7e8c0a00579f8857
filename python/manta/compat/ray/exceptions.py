# SPDX-License-Identifier: Apache-2.0
"""ray.exceptions: manta's exceptions by the names that programs catch. What a train function raises
comes out of run() as itself, not as a RayTaskError."""

from __future__ import annotations

from typing import NoReturn

from manta import Canceled as TaskCancelledError
from manta import Error as RayError
from manta import NoRoom as ActorUnschedulableError
from manta import NoRoom as TaskUnschedulableError
from manta import TrainingFailed as RayTaskError
from manta import WorkerLost as ActorDiedError
from manta import WorkerLost as NodeDiedError
from manta import WorkerLost as RayActorError
from manta import WorkerLost as WorkerCrashedError
from manta._front import refuse as _refuse

__all__ = ["ActorDiedError", "ActorUnschedulableError", "GetTimeoutError", "NodeDiedError",
           "ObjectLostError", "RayActorError", "RayError", "RaySystemError", "RayTaskError",
           "TaskCancelledError", "TaskUnschedulableError", "WorkerCrashedError"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


class RaySystemError(RayError):
    """Of Ray's own processes: manta has none of them, and never raises it."""


class ObjectLostError(RayError):
    """An object of put() lives as long as a reference to it: manta never raises it."""


class GetTimeoutError(RayError, TimeoutError):
    """get() never waits: manta never raises it."""


def __getattr__(name: str) -> NoReturn:
    _refuse("ray.exceptions", name, __all__)

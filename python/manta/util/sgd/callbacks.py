# SPDX-License-Identifier: Apache-2.0
"""manta.sgd.callbacks, by the path that older programs import."""

from typing import Any

from manta.sgd import callbacks
from manta.sgd.callbacks import *  # noqa: F403

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> Any:
    return getattr(callbacks, name)

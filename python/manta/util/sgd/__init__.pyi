# SPDX-License-Identifier: Apache-2.0
from typing import Any

from manta.sgd import *  # noqa: F403

from . import callbacks as callbacks
from . import v2 as v2

def __getattr__(name: str) -> Any: ...  # what imports torch

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from manta._operator import *  # noqa: F403
from manta._operator import CreatorOperator as CreatorOperator
from manta._operator import TrainingOperator as TrainingOperator
from manta.sgd import *  # noqa: F403

from . import callbacks as callbacks
from . import pytorch as pytorch
from . import tf as tf
from . import utils as utils

def __getattr__(name: str) -> Any: ...  # what imports torch

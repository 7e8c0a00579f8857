# SPDX-License-Identifier: Apache-2.0
from manta._operator import *  # noqa: F403
from manta._operator import CreatorOperator as CreatorOperator
from manta._operator import TrainingOperator as TrainingOperator

from . import constants as constants
from . import torch_trainer as torch_trainer
from . import training_operator as training_operator

# SPDX-License-Identifier: Apache-2.0
from manta._operator import *  # noqa: F403
from manta._operator import CreatorOperator as CreatorOperator
from manta._operator import TrainingOperator as TrainingOperator

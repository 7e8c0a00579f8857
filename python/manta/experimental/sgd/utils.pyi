# SPDX-License-Identifier: Apache-2.0
from manta._operator.override import *  # noqa: F403
from manta._front.meters import *  # noqa: F403

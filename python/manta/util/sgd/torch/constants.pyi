# SPDX-License-Identifier: Apache-2.0
from manta._front.schedule import *  # noqa: F403

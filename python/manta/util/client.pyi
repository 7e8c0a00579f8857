# SPDX-License-Identifier: Apache-2.0
from manta._front.client import *  # noqa: F403

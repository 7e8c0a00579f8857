# SPDX-License-Identifier: Apache-2.0
from manta.sgd.callbacks import *  # noqa: F403

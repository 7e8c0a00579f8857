# SPDX-License-Identifier: Apache-2.0
"""manta.sgd.callbacks, by the path that older programs import."""

from manta.sgd.callbacks import *  # noqa: F403

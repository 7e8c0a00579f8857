# SPDX-License-Identifier: Apache-2.0
"""manta.sgd, by the path that older programs import."""

from manta.sgd import *  # noqa: F403
from manta.sgd import __all__ as __all__

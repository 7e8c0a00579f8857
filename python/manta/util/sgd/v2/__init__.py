# SPDX-License-Identifier: Apache-2.0
"""manta.sgd, by the path that older programs import."""

from typing import Any

from manta import sgd
from manta.sgd import *  # noqa: F403
from manta.sgd import __all__ as __all__


def __getattr__(name: str) -> Any:
    """What imports torch, and what is not there."""
    return getattr(sgd, name)

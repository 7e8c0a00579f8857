# SPDX-License-Identifier: Apache-2.0
"""An operation between ranks that was not over in time. Apart from what needs torch: a driver
without it may get this from a worker."""

from __future__ import annotations


class CollectiveTimeout(RuntimeError, TimeoutError):
    """Whichever of the two is expected: torch's other backends raise a RuntimeError."""

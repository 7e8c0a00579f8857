# SPDX-License-Identifier: Apache-2.0
"""No framework: backend=None."""

from __future__ import annotations

from manta._frameworks.base import Framework


class Plain(Framework):
    """All is as the base class has it."""

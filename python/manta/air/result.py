# SPDX-License-Identifier: Apache-2.0
"""What fit() gives."""

from __future__ import annotations

from manta._front.fit.result import Result

__all__ = ["Result"]

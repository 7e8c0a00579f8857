# SPDX-License-Identifier: Apache-2.0
"""The state of a training."""

from __future__ import annotations

from manta._front.fit.checkpoint import Checkpoint

__all__ = ["Checkpoint"]

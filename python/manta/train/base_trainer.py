# SPDX-License-Identifier: Apache-2.0
"""What fit() raises."""

from __future__ import annotations

from manta._front.fit.failure import TrainingFailedError

__all__ = ["TrainingFailedError"]

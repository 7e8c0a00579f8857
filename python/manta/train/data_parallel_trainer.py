# SPDX-License-Identifier: Apache-2.0
"""The trainer without a framework, which those of frameworks derive from."""

from __future__ import annotations

from manta._front.fit.trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]

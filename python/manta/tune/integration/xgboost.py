# SPDX-License-Identifier: Apache-2.0
"""Callbacks for xgboost.train() inside of a trial. XGBoost is imported when one of them is asked
for."""

from __future__ import annotations

from typing import Any

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> Any:
    from manta.tune import integration
    return integration._look_up(__name__, "_xgboost", name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""Callbacks for a Trainer of (PyTorch) Lightning inside of a trial. Lightning is imported when one
of them is asked for."""

from __future__ import annotations

from typing import Any

__all__ = ["TuneCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> Any:
    from manta.tune import integration
    return integration._look_up(__name__, "_lightning", name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""When a run has come far enough: RunConfig(stop=…). Rank 0 asks before each of its reports, so
that the run ends with exactly that one."""

from __future__ import annotations

import time
from typing import Any

from manta import _manta

_began = time.monotonic()


def restart_clock() -> None:
    """A call of a train function begins."""
    global _began
    _began = time.monotonic()


def is_reached(stop: Any, trial_id: str, row: dict[str, Any]) -> bool:
    """Whether the run is to end with this report."""
    result = {**row, "training_iteration": _manta.iteration() + 1,
              "time_total_s": time.monotonic() - _began, "timestamp": int(time.time())}
    if not isinstance(stop, dict):
        return bool(stop(trial_id, result)) or bool(getattr(stop, "stop_all", bool)())
    for name, least in stop.items():
        if name not in result:
            raise ValueError(f"stop: no report has the metric {name!r}, which the run is to end by"
                             f"\nhint: it has {', '.join(sorted(result))}")
        if result[name] >= least:
            return True
    return False

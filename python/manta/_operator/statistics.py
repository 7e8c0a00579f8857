# SPDX-License-Identifier: Apache-2.0
"""The metrics of all workers in one dict."""

from __future__ import annotations

import math
import numbers
from typing import Any

from manta._front.meters import NUM_SAMPLES


def reduced(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Samples are added up; of other numbers it is the mean over the workers that have one, as a
    whole number where all have the same; of anything else that of rank 0."""
    counts = [s.get(NUM_SAMPLES, math.nan) for s in stats]
    found: dict[str, Any] = {NUM_SAMPLES: sum(counts)}
    for name, first in stats[0].items():
        if name == NUM_SAMPLES:
            continue
        if isinstance(first, numbers.Number):
            found[name] = _mean([s[name] for s in stats if name in s])
        else:
            found[name] = first
    return found


def _mean(values: list[Any]) -> Any:
    if all(type(v) is int and v == values[0] for v in values):
        return values[0]
    there = [float(v) for v in values if not math.isnan(v)]
    return math.fsum(there) / len(there) if there else math.nan

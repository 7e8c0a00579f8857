# SPDX-License-Identifier: Apache-2.0
"""Averages and durations over the batches of a pass, by the names of ray.util.sgd.utils."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from manta._names import public

__all__ = ["BATCH_COUNT", "BATCH_SIZE", "NUM_SAMPLES", "AverageMeter", "AverageMeterCollection",
           "TimerCollection", "TimerStat"]

BATCH_COUNT = "batch_count"
NUM_SAMPLES = "num_samples"
BATCH_SIZE = "*batch_size"  # in a config: that of all workers together, which is divided


def __dir__() -> list[str]:
    return __all__


@public
class AverageMeter:
    """The average of the values it was given, weighted by their number of samples, and the last."""

    val: Any
    avg: Any
    sum: Any
    count: Any

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val: Any, n: Any = 1) -> None:
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


@public
class AverageMeterCollection:
    """A meter for each metric of a batch.

        meters = AverageMeterCollection()
        for batch in iterator:
            meters.update({"loss": …}, n=len(batch))
        return meters.summary()     # batch_count, num_samples, loss, last_loss
    """

    def __init__(self) -> None:
        self.n = 0
        self._batches = 0
        self._meters: dict[str, AverageMeter] = defaultdict(AverageMeter)

    def update(self, metrics: Mapping[str, Any], n: int = 1) -> None:
        """The metrics of one batch of n samples."""
        self._batches += 1
        self.n += n
        for name, value in metrics.items():
            self._meters[name].update(value, n=n)

    def summary(self) -> dict[str, Any]:
        """Of all batches: how many, how many samples, and of each metric the average and the
        last."""
        found: dict[str, Any] = {BATCH_COUNT: self._batches, NUM_SAMPLES: self.n}
        for name, meter in self._meters.items():
            found[str(name)] = meter.avg
            found[f"last_{name}"] = meter.val
        return found


class TimerStat:
    """How long a block of code takes: `with timer:`. The figures are of the last `window_size`
    times."""

    def __init__(self, window_size: int = 10):
        self._window = window_size
        self._began: float | None = None
        self.reset()

    def reset(self) -> None:
        self.count = 0
        self._took: list[float] = []
        self._units: list[float] = []

    def __enter__(self) -> TimerStat:
        if self._began is not None:
            raise RuntimeError("this timer is running already")
        self._began = time.monotonic()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._began is not None
        self.push(time.monotonic() - self._began)
        self._began = None

    def push(self, seconds: float) -> None:
        self.count += 1
        self._took = [*self._took, seconds][-self._window:]

    def push_units_processed(self, n: float) -> None:
        """What was done in that time: samples, say."""
        self._units = [*self._units, n][-self._window:]

    @property
    def mean(self) -> float:
        return statistics.fmean(self._took) if self._took else float("nan")

    @property
    def median(self) -> float:
        return statistics.median(self._took) if self._took else float("nan")

    @property
    def sum(self) -> float:
        return sum(self._took)

    @property
    def max(self) -> float:
        return max(self._took, default=float("nan"))

    @property
    def first(self) -> float | None:
        return self._took[0] if self._took else None

    @property
    def last(self) -> float | None:
        return self._took[-1] if self._took else None

    @property
    def size(self) -> int:
        return len(self._took)

    @property
    def mean_units_processed(self) -> float:
        return statistics.fmean(self._units) if self._units else float("nan")

    @property
    def mean_throughput(self) -> float:
        """Units per second."""
        return sum(self._units) / self.sum if self._took and self.sum else 0.0


class TimerCollection:
    """Timers by name: `with timers.record("fwd"):`."""

    def __init__(self) -> None:
        self._timers: dict[str, TimerStat] = defaultdict(TimerStat)
        self._enabled = True

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        """Blocks are not measured any more."""
        self._enabled = False

    def reset(self) -> None:
        for timer in self._timers.values():
            timer.reset()

    def record(self, key: str) -> AbstractContextManager[Any]:
        return self._timers[key] if self._enabled else contextlib.nullcontext()

    def stats(self, mean: bool = True, last: bool = False) -> dict[str, Any]:
        """Seconds: mean_NAME_s, last_NAME_s."""
        found: dict[str, Any] = {}
        for name, timer in self._timers.items():
            if timer.count and mean:
                found[f"mean_{name}_s"] = timer.mean
            if timer.count and last:
                found[f"last_{name}_s"] = timer.last
        return found

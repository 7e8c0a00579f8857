# SPDX-License-Identifier: Apache-2.0
"""Averages and timers, by the names of ray.util.sgd.utils."""

from __future__ import annotations

import pickle
import time

import pytest

from manta.util.sgd import utils
from manta.util.sgd.utils import (BATCH_COUNT, NUM_SAMPLES, AverageMeter, AverageMeterCollection,
                                  TimerCollection, TimerStat)


def test_an_average_is_weighted_by_samples() -> None:
    meter = AverageMeter()
    meter.update(5)
    assert (meter.val, meter.avg, meter.sum) == (5, 5.0, 5)
    meter.update(10, n=4)
    assert (meter.val, meter.avg, meter.sum, meter.count) == (10, 9.0, 45, 5)
    meter.reset()
    assert (meter.val, meter.avg, meter.sum, meter.count) == (0, 0, 0, 0)


def test_a_collection_has_averages_and_the_last_values() -> None:
    meters = AverageMeterCollection()
    meters.update({"loss": 0.5, "acc": 0.5}, n=32)
    meters.update({"loss": 0.25, "acc": 0.75}, n=96)
    assert meters.summary() == {BATCH_COUNT: 2, NUM_SAMPLES: 128, "loss": 0.3125, "last_loss": 0.25,
                                "acc": 0.6875, "last_acc": 0.75}
    again = pickle.loads(pickle.dumps(meters))
    assert again.summary() == meters.summary()
    assert b"_front" not in pickle.dumps(meters)  # its name stays when the file moves


def test_a_timer_measures_its_last_blocks() -> None:
    timer = TimerStat(window_size=2)
    with timer:
        time.sleep(0.01)
    assert timer.last and 0.01 <= timer.last < 5
    with timer, pytest.raises(RuntimeError, match="running"):
        with timer:
            pass
    timer.reset()
    assert timer.first is None and timer.mean_throughput == 0
    for seconds in (9.0, 1.0, 3.0):
        timer.push(seconds)
        timer.push_units_processed(4)
    assert (timer.count, timer.size, timer.mean, timer.median, timer.sum, timer.max) == (
        3, 2, 2, 2, 4, 3)
    assert (timer.first, timer.last) == (1, 3)
    assert (timer.mean_units_processed, timer.mean_throughput) == (4, 2)


def test_timers_by_name() -> None:
    timers = TimerCollection()
    with timers.record("fwd"):
        pass
    timers.disable()
    with timers.record("grad"):
        pass
    timers.enable()
    assert sorted(timers.stats(last=True)) == ["last_fwd_s", "mean_fwd_s"]
    timers.reset()
    assert timers.stats() == {}


def test_override_needs_something_to_override() -> None:
    class Base:
        def step(self) -> int:
            return 1

    class Derived(Base):
        @utils.override(Base)
        def step(self) -> int:
            return 2

    assert Derived().step() == 2
    with pytest.raises(TypeError, match="no stop to override"):
        @utils.override(Base)
        def stop(self: Base) -> None:
            pass

# SPDX-License-Identifier: Apache-2.0
"""Many runs, one thread: _manta.next_any."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any, Iterator

import pytest

from manta import _manta, sgd
from manta.sgd import Trainer


def steps(config: dict[str, Any]) -> str:
    print("hello of", config["id"])
    for i in range(config["n"]):
        if i == config.get("fail"):
            raise ValueError(f"run {config['id']} fails")
        sgd.report(i=i, id=config["id"])
    while config.get("wait"):
        time.sleep(0.01)
    return f"done {config['id']}"


class Runs:
    """Runs of the lowest level; trainers and their runs end with the stack."""

    def __init__(self, stack: ExitStack):
        self.stack = stack
        self.trainers: list[Trainer] = []
        self.low: list[_manta.Run | None] = []

    def start(self, n: int, **config: Any) -> int:
        trainer = self.stack.enter_context(Trainer(backend=None, num_workers=1))
        run = trainer.run_generator(steps, {"id": len(self.low), "n": n, **config})
        self.stack.callback(run.close)
        assert run._run is not None
        self.trainers.append(trainer)
        self.low.append(run._run._run)
        return len(self.low) - 1


@pytest.fixture
def runs() -> Iterator[Runs]:
    with ExitStack() as stack:
        yield Runs(stack)


def test_rows_and_ends_of_many(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    for n in (0, 3, 12):
        runs.start(n)
    low = list(runs.low)
    seen: list[list[int]] = [[], [], []]
    while any(low):
        which, item = _manta.next_any(low)
        if item is None:
            run = low[which]
            assert run is not None and run.next() is None
            assert run.results() == [f"done {which}"]
            low[which] = None
            continue
        rows, iteration, rewound_to, complete = item
        assert rows[0]["id"] == which and (rewound_to, complete) == (-1, True)
        assert iteration == rows[0]["i"] + 1
        seen[which].append(iteration)
    assert seen == [[], [1, 2, 3], list(range(1, 13))]
    out = capfd.readouterr().out
    assert all(f"hello of {k}" in out for k in range(3))


def test_a_failure_is_raised_by_the_run_itself(runs: Runs) -> None:
    fails, low = runs.start(5, fail=2), runs.low
    runs.start(2, wait=True)
    rows = 0
    while (got := _manta.next_any(low))[1] is not None or got[0] != fails:
        rows += got[0] == fails
    run = low[fails]
    assert rows == 2 and run is not None
    with pytest.raises(_manta.Error, match="run 0 fails"):
        run.next()


def test_a_limit_and_a_cancel(runs: Runs) -> None:
    waits = [runs.start(0, wait=True) for _ in range(2)]
    with pytest.raises(TimeoutError, match="no row of any run within"):
        _manta.next_any(runs.low, 0.05)
    soon = threading.Timer(0.1, runs.trainers[1]._trainer.cancel)
    soon.start()
    assert _manta.next_any(runs.low) == (waits[1], None)
    soon.join()


def test_what_makes_no_sense_is_refused(runs: Runs) -> None:
    runs.start(0, wait=True)
    run = runs.low[0]
    assert run is not None
    for none in ([], [None, None]):
        with pytest.raises(ValueError, match="there is no run to wait for"):
            _manta.next_any(none)
    with pytest.raises(TypeError, match="a sequence of runs is wanted"):
        _manta.next_any([run, 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="another call on this run is in progress"):
        _manta.next_any([run, run])
    run.close()
    with pytest.raises(ValueError, match="the run is closed"):
        _manta.next_any([run])

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in one trial touches no other."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from manta import tune

N = 6
KILLS = int(os.environ.get("KILLS", "4"))


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "raise_on_failed_trial": False, **options})


def fault(config: dict[str, Any]) -> None:
    tune.report(at=1)
    if config["n"] % 2 == 0:
        tune.report(at=2, pid=os.getpid())
        return
    what = config["what"]
    if what == "crash":
        ctypes.string_at(0)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "memory":
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, before[1]))
        try:
            bytearray(2 << 30)
        finally:  # the process may serve other trials
            resource.setrlimit(resource.RLIMIT_AS, before)
    elif what == "exit":
        os._exit(3)
    elif what == "raise":
        raise LookupError("as it was told to")
    elif what == "result":
        tune.report(lock=threading.Lock())


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("what, says", [
    ("crash", "SIGSEGV"), ("kill", "SIGKILL"), ("memory", "MemoryError"), ("exit", "exit"),
    ("raise", "as it was told to"), ("result", "pickle")])
def test_a_trial_that_fails_is_the_only_one(what: str, says: str, reuse: bool) -> None:
    found = run(fault, {"what": what, "n": tune.grid_search(list(range(N)))}, reuse_actors=reuse)
    assert [t.status for t in found.trials] == ["TERMINATED", "ERROR"] * (N // 2)
    for t in found.trials:
        if t.status == "ERROR":
            assert says in t.error_msg and t.last_result["at"] == 1
        else:
            assert t.last_result["at"] == 2


def hang(config: dict[str, Any]) -> None:
    if config["hangs"]:
        Path(config["where"], "pid").write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    tune.report(at=1)


def gone(pid: int) -> bool:
    by = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < by:
        time.sleep(0.01)
    return not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("limit", [{"stop": {"time_total_s": 1.0}}, {"time_budget_s": 1.5}])
def test_a_trial_that_never_reports_is_ended(tmp_path: Path, limit: dict[str, Any]) -> None:
    began = time.monotonic()
    found = run(hang, {"hangs": tune.grid_search([True, False]), "where": str(tmp_path)},
                max_concurrent_trials=2, **limit)
    assert [t.status for t in found.trials] == ["TERMINATED", "TERMINATED"]
    assert "at" not in (found.trials[0].last_result or {})
    assert found.trials[1].last_result["at"] == 1
    assert gone(int((tmp_path / "pid").read_text())) and time.monotonic() - began < 30


def frozen(config: dict[str, Any]) -> None:
    tune.report(at=1)
    if config["n"] == 0:
        os.kill(os.getppid() if config["seat"] else os.getpid(), signal.SIGSTOP)
    tune.report(at=2)


@pytest.mark.parametrize("seat", [False, True])
def test_what_is_frozen_is_ended_in_time(seat: bool) -> None:
    """By SIGSTOP: a trial, or the worker that it was forked from, replaced before the next one."""
    found = run(frozen, {"n": tune.grid_search([0, 1, 2]), "seat": seat}, max_concurrent_trials=1,
                stop={"time_total_s": 1.0})
    reached = [(t.last_result or {}).get("at") for t in found.trials]
    assert reached == ([2, 2, 2] if seat else [1, 2, 2])
    assert {t.status for t in found.trials} == {"TERMINATED"}


# --- drivers that are killed ----------------------------------------------------------------------

SCRIPT = """
import sys
from manta import tune

def train(config):
    total = (tune.load_checkpoint() or {"total": 0.0})["total"]
    for i in range(3):
        total += config["x"] * config["a"]
        tune.report(total=total)

if __name__ == "__main__":
    space = {"a": tune.grid_search([1, 2, 3]), "x": tune.loguniform(1e-3, 1)}
    tune.run(train, space, num_samples=int(sys.argv[2]), metric="total", mode="min", seed=5,
             local_dir=sys.argv[1], name="killed", resume="AUTO", verbose=0,
             max_concurrent_trials=2)
"""


def results(where: Path) -> list[tuple[str, Any, Any, int]]:
    found, = where.glob("killed*")
    return [(t.status, t.config, t.last_result["total"], len(t.rows))
            for t in tune.ExperimentAnalysis(str(found)).trials]


@pytest.mark.deadline(60.0 + 10 * KILLS)
def test_a_driver_that_is_killed_again_and_again_changes_nothing(tmp_path: Path) -> None:
    """KILLS=50 in the environment: more of them, and more trials."""
    kills, samples = KILLS, str(8 * KILLS)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def start(name: str) -> subprocess.Popen[str]:
        where = tmp_path / name
        where.mkdir(exist_ok=True)
        return subprocess.Popen([sys.executable, str(script), str(where), samples], text=True,
                                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    began = time.monotonic()
    quiet = start("quiet")
    assert quiet.wait(120) == 0, quiet.stderr and quiet.stderr.read()
    whole, draw, fired = time.monotonic() - began, random.Random(kills), 0
    for _ in range(kills):
        driver = start("killed")
        try:
            driver.wait(0.2 + whole * 1.5 / kills * draw.random())
        except subprocess.TimeoutExpired:
            driver.kill()
            fired += driver.wait() == -signal.SIGKILL
    last = start("killed")
    assert last.wait(120) == 0, last.stderr and last.stderr.read()
    wanted = results(tmp_path / "quiet")
    assert fired * 2 >= kills and len(wanted) == 24 * kills
    assert results(tmp_path / "killed") == wanted
    assert {(status, rows) for status, _, _, rows in wanted} == {("TERMINATED", 3)}

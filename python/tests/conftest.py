# SPDX-License-Identifier: Apache-2.0
"""What all tests of the package share: a place of their own, deadlines, and a look at what is left.

    pytest [--cases=FILE] [--part=K/N]

FILE gets a line of JSON per test: name, verdict, note. --part: only the files of the K-th of N
parts, from 1; all parts together run every test.

A test may take DEADLINE_S, or what its marker `deadline(seconds)` says; then it fails. One that
does not even notice is ended with all others by faulthandler_timeout (pyproject.toml). When the
last test is done, no process that one of them started may be left.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, Mapping

import pytest

from manta._runtime.worker import cure_amx

DEADLINE_S = 60.0
GONE_S = 10.0  # all processes are gone so soon after the last test

# Runs go to a directory of our own, which also tells our processes from those of others.
_place = Path(tempfile.mkdtemp(prefix="manta-py-"))
for _name in [k for k in os.environ if k.startswith("MANTA_") and k not in ("MANTA_BIN",
                                                                            "MANTA_AMX")]:
    del os.environ[_name]
(_place / "runtime").mkdir(mode=0o700)
os.environ["MANTA_RESULTS"] = str(_place / "results")
os.environ["XDG_RUNTIME_DIR"] = str(_place / "runtime")
cure_amx()  # before torch is imported: bf16 is computed here as in a worker, whatever the CPU


# --- deadlines ------------------------------------------------------------------------------------


def _deadline_of(item: pytest.Item) -> float:
    mark = item.get_closest_marker("deadline")
    return float(mark.args[0]) if mark else DEADLINE_S


def _limited(item: pytest.Item) -> Iterator[None]:
    seconds = _deadline_of(item)

    def late(signum: int, frame: Any) -> None:
        faulthandler.dump_traceback(all_threads=True)  # of the other threads as well
        pytest.fail(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    return (yield from _limited(item))


# --- what is there --------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("--part"):
        number, count = map(int, part.split("/"))
        mine = deal(Counter(item.path for item in items), count)[number - 1]
        items[:] = [item for item in items if item.path in mine]
    if not os.path.exists("/dev/nvidia0"):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU"))


def deal(sizes: Mapping[Path, int], count: int) -> list[set[Path]]:
    """The files in parts of about as many tests: the largest first, each to the smallest part."""
    parts: list[set[Path]] = [set() for _ in range(count)]
    filled = [0] * count
    for path in sorted(sizes, key=lambda p: (-sizes[p], p)):
        least = filled.index(min(filled))
        parts[least].add(path)
        filled[least] += sizes[path]
    return parts


# --- telling --------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", metavar="FILE", help="a line of JSON per test")
    parser.addoption("--part", metavar="K/N", help="only the K-th of N parts of the files")


class Cases:
    """Writes each case as it ends: those before a crash are not lost."""

    def __init__(self, path: str, part: str | None) -> None:
        self.file = open(path, "w")
        self.is_first = not part or part.startswith("1/")

    def tell(self, name: str, verdict: str, note: str = "") -> None:
        print(json.dumps({"name": name, "verdict": verdict, "note": note}), file=self.file,
              flush=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.removeprefix("python/tests/")
        if report.skipped:
            self.tell(name, "skipped", _reason(report))
        elif report.failed:
            self.tell(name, "failed", f"{report.longreprtext}\n{report.capstderr}")
        elif report.when == "call":
            self.tell(name, "passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not self.is_first:  # every part collects all files
            return
        if report.failed:
            self.tell(report.nodeid, "failed", report.longreprtext)
        elif report.skipped:
            self.tell(report.nodeid, "skipped", _reason(report))


def _reason(report: Any) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return str(text).removeprefix("Skipped: ")


_cases: Cases | None = None


def pytest_configure(config: pytest.Config) -> None:
    global _cases
    if path := config.getoption("--cases"):
        _cases = Cases(path, config.getoption("--part"))
        config.pluginmanager.register(_cases)


# --- what is left ---------------------------------------------------------------------------------


def _ours(proc: Path) -> str | None:
    """What to call a process that a test started, or that is our child; else None."""
    try:
        parent = int((proc / "stat").read_text().rpartition(")")[2].split()[1])
        if parent != os.getpid() and str(_place).encode() not in (proc / "environ").read_bytes():
            return None
        words = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state, threads = _said(proc, "State"), _said(proc, "Threads")
    except OSError:  # gone, or not ours
        return None
    return f"child of {parent}, {state}, {threads} threads: {words[-100:] or 'a zombie'}"


def _said(proc: Path, name: str) -> str:
    """A line of its status."""
    lines = (proc / "status").read_text().splitlines()
    return next((s.split("\t", 1)[1] for s in lines if s.startswith(f"{name}:")), "?")


def left() -> dict[int, str]:
    """Processes that tests have left behind, by pid."""
    pids = (p for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != os.getpid())
    return {int(p.name): said for p in pids if (said := _ours(p))}


def _wait_until_gone() -> dict[int, str]:
    by = time.monotonic() + GONE_S
    while (found := left()) and time.monotonic() < by:
        time.sleep(0.05)
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if manta := sys.modules.get("manta"):
        gc.collect()  # trainers that nobody has
        manta.shutdown()
    found = _wait_until_gone()
    for pid, words in found.items():
        print(f"\nLEFT BEHIND: {pid} {words}", file=sys.stderr)
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, signal.SIGKILL)
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if _cases and session.testscollected:
        text = "\n".join(f"{pid} {words}" for pid, words in found.items())
        _cases.tell("no process is left", "failed" if found else "passed", text)
        _cases.file.close()
    shutil.rmtree(_place, ignore_errors=True)

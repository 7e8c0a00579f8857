#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/model/run.py - checks the models with spin: each row exhaustively, and each broken one must
fail, which shows that the models can. TAP on standard output.

A trail of a failure is shown by hand, in a scratch directory (README.md says how)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tools"))
from tap import Skip, main  # noqa: E402

DEPTH = "500000"
LIMIT_S = 120


@dataclass
class Row:
    name: str
    model: str
    options: str = ""  # -D of the model
    fails: str = ""  # what a broken one runs into
    live: bool = False  # liveness, under weak fairness


ENDLESS, ASSERTION = "invalid end state", "assertion violated"
ROWS = [
    Row("nobody sleeps beside what it waits for", "call"),
    Row("three ranks neither", "call", "N=3 TURNS=1"),
    Row("a rank dies at any point", "call", "KILL"),
    Row("one of three dies at any point", "call", "N=3 TURNS=1 DIRECT=0 KILL NO_LEAVE"),
    Row("time is up at any moment", "call", "DEADLINE"),
    Row("time is up and a rank dies", "call", "TURNS=1 KILL DEADLINE"),
    Row("all end when a rank dies", "call", "KILL", live=True),
    Row("broken: rings before the store", "call", "NO_LEAVE RING_FIRST", ENDLESS),
    Row("broken: no second look", "call", "NO_RECHECK", ENDLESS),
    Row("broken: left is looked at too late", "call", "LEFT_LATE", ASSERTION),
    Row("broken: the agent does not ring", "call", "KILL SILENT", ENDLESS),
    Row("broken: who gave up leaves without a word", "call", "DEADLINE NO_LEAVE", ENDLESS),
    Row("broken: memory of who gave up is trusted", "call", "DEADLINE NO_SETTLE", ASSERTION),
    Row("broken: calls after a failed one", "call", "DIRECT=0 DEADLINE NO_READY", ASSERTION),
    Row("no slot is written while it is read", "ring"),
    Row("nor with three ranks", "ring", "N=3 CALLS=2"),
    Row("broken: three slots", "ring", "SLOTS=3", ASSERTION),
    Row("broken: one more ahead", "ring", "AHEAD=3", ASSERTION),
    Row("broken: one post", "ring", "POSTS=1", ASSERTION),
    Row("each work is run once and in order", "lane"),
    Row("every wait for one ends", "lane", live=True),
    Row("broken: two run the first", "lane", "NO_BUSY", ASSERTION),
    Row("broken: an end is not told", "lane", "NO_CALL", ENDLESS),
    Row("broken: the end of the lane is not told", "lane", "STOP_ASLEEP", ENDLESS),
    Row("one thread is in, and nobody sleeps beside a free mutex", "mutex"),
    Row("nor where threads give up", "mutex", "GIVE_UP"),
    Row("broken: who was woken forgets the others", "mutex", "AS_ONE", ENDLESS),
    Row("broken: who sleeps does not say so", "mutex", "KEEP_ONE", ENDLESS),
]


def run(command: list[str], where: str) -> str:
    done = subprocess.run(command, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 or command[0] == "./pan", done.stdout
    return done.stdout


def search(row: Row) -> str:
    """What the search says of a row."""
    options = [f"-D{o}" for o in row.options.split()] + (["-DLIVENESS"] if row.live else [])
    how = ["-DNFAIR=8"] if row.live else ["-DSAFETY"]
    how += ["-O0" if row.fails or row.model == "lane" else "-O1"]  # short searches
    with tempfile.TemporaryDirectory() as scratch:
        run(["spin", "-a", *options, str(HERE / f"{row.model}.pml")], scratch)
        run(["cc", "-w", "-DCOLLAPSE", *how, "-o", "pan", "pan.c"], scratch)
        return run(["./pan", f"-m{DEPTH}", *(["-a", "-f"] if row.live else [])], scratch)


def check(row: Row) -> None:
    for tool in ("spin", "cc"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    said = search(row)
    found = re.search(r"errors: (\d+)", said)
    assert found and "max search depth too small" not in said and "Search not completed" not in (
        "" if row.fails else said), said
    assert (found[1] != "0") == bool(row.fails) and row.fails in said, said


def test_of(row: Row) -> Callable[[], None]:
    return lambda: check(row)


if __name__ == "__main__":
    main({f"test_{row.name}": test_of(row) for row in ROWS})

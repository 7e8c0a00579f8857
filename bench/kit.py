# SPDX-License-Identifier: Apache-2.0
"""What the measures share: rows of the table, statistics, and the programs of one build."""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netns

ROOT = Path(__file__).resolve().parent.parent
PROGRAM_LIMIT_S = 900
CALM = 0.15  # of the processors, for everything else
Samples = dict[str, list[float]]


class CannotMeasure(Exception):
    pass


@dataclass
class Row:
    """A line of the table. `ok` is None where there is no bar, or not all of it could be seen."""
    name: str
    what: str
    unit: str
    ours: list[float]
    bar: str = ""
    ok: bool | None = None
    peer_name: str = ""
    peer: list[float] = field(default_factory=list)
    ratio: float | None = None  # median over pairs
    note: str = ""


@dataclass
class Sizes:
    reps: int = 20
    kills: int = 50
    busy_kills: int = 200
    rows: int = 200_000
    flat_rows: int = 10_000_000  # some GB of files, for minutes
    tracked_rows: int = 2000
    many: int = 256
    state_mb: int = 100
    write_mb: int = 256
    big_mb: int = 1024
    step_ms: int = 300
    ddp_mb: int = 25
    ddp_us: int = 20_000
    same_mb: int = 26
    net_mb: int = 25
    data_rows: int = 1_000_000
    dash_rows: int = 1_000_000
    data_links_mb: int = 20_000
    data_reps: int = 3  # passes over all files in one process
    get_mb: int = 1000
    comm_reps: int = 9  # rounds per size
    gloo_reps: int = 3
    comm_ms: int = 60  # per size
    comm_factor: int = 4  # between sizes
    comm_to: int = 256 << 20
    limit_mb: int = 100
    search_trials: int = 1000
    quality_trials: int = 200
    quality_seeds: int = 30
    wait_ms: int = 1000
    storm_kills: int = 1000
    py_reps: int = 7  # fresh interpreters, with all the time they take
    rounds: int = 3  # programs that make several samples each
    peer_reps: int = 3  # of Ray Train and torchrun: seconds to minutes each
    py_rows: int = 100_000
    py_kills: int = 10
    py_runs: int = 300
    trials: int = 2000
    many_trials: int = 100_000
    py_steps: int = 200
    py_batch: int = 32


QUICK = Sizes(reps=2, kills=2, busy_kills=2, rows=2000, flat_rows=10_000, tracked_rows=200,
              many=16, state_mb=8, write_mb=8, big_mb=16,
              step_ms=10, ddp_mb=1, ddp_us=500, same_mb=1,
              dash_rows=2000, net_mb=1, data_rows=2000, data_links_mb=4, data_reps=2, get_mb=20,
              comm_reps=1, gloo_reps=1, comm_ms=2,
              comm_factor=128, comm_to=64 << 10, limit_mb=1, search_trials=120, quality_trials=15,
              quality_seeds=2, wait_ms=50, storm_kills=5,
              py_reps=1, rounds=1, peer_reps=0, py_rows=2000, py_kills=2, py_runs=10,
              py_steps=5, py_batch=2, trials=40, many_trials=400)


@dataclass
class Grid:
    """A table of its own below the rows: a figure per size and contestant."""
    title: str
    columns: list[str]
    lines: list[list[str]]


def percentile(samples: list[float], p: float) -> float:
    """The smallest sample that at least p percent do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]


def median(samples: list[float]) -> float:
    return statistics.median(samples)


def pair_ratio(above: list[float], below: list[float]) -> float | None:
    return median([a / b for a, b in zip(above, below)]) if above and below else None


def number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


class Bench:
    """Runs the programs of one build in a directory of its own, and gives their samples."""

    def __init__(self, build: Path, sizes: Sizes, scratch: Path) -> None:
        self.build, self.sizes, self.scratch = build, sizes, scratch
        self.grids: list[Grid] = []
        self.patience_s = 0.0
        self.python: Path | None = None  # where the Python package is
        self.env = {**os.environ, "MANTA_BIN": str(build / "src" / "cmd" / "manta"),
                    "MANTA_MODULES": str(build / "src")}

    def text(self, program: str, *args: object, **env: str) -> str:
        return self.run(self.build / "bench" / f"bench_{program}", *args, env={**self.env, **env})

    def manta(self, *args: object) -> Any:
        """What the command says in JSON."""
        return json.loads(self.run(self.build / "src" / "cmd" / "manta", *args, "--json"))

    def say(self, text: str) -> None:
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def run(self, *words: object, env: dict[str, str] | None = None) -> str:
        command = [str(w) for w in words]
        try:
            done = subprocess.run(command, env=env or self.env, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=PROGRAM_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise CannotMeasure(str(e)) from e
        if done.returncode != 0:
            raise CannotMeasure(f"{' '.join(command)}: exit status {done.returncode}: "
                                f"{done.stderr.strip()}")
        return done.stdout

    def samples(self, program: str, *args: object, **env: str) -> Samples:
        """One call in a fresh directory, which is removed; env: besides what all programs get."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as d:
            return parse(self.text(program, *args, "--dir", d, **env))

    def text_samples(self, program: str, *args: object) -> Samples:
        """One call of a program that is told itself where to work."""
        return parse(self.text(program, *args))

    def can_span_hosts(self) -> bool:
        """Not without root, ip or UCX: the hosts are network namespaces."""
        return netns.possible() and (self.build / "src" / "libmanta-ucx.so").exists()


class Others:
    """What part of the processors was busy with anything but our own programs, since it was made.
    Ours are those that have ended meanwhile."""

    def __init__(self) -> None:
        self.ticks, self.idle = self.look()
        self.own = self.own_ticks()

    @staticmethod
    def look() -> tuple[int, int]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    @staticmethod
    def own_ticks() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (used.ru_utime + used.ru_stime) * os.sysconf("SC_CLK_TCK")

    def share(self) -> float:
        ticks, idle = self.look()
        busy = ticks - self.ticks - (idle - self.idle) - (self.own_ticks() - self.own)
        return busy / max(1, ticks - self.ticks)


def await_calm(by: float) -> None:
    """Until nothing else runs, or the monotonic clock says `by`."""
    while time.monotonic() < by:
        others = Others()
        time.sleep(0.15)
        if others.share() < CALM:
            return


def parse(text: str) -> Samples:
    out: Samples = defaultdict(list)
    for line in text.splitlines():
        name, value = line.split()
        out[name].append(float(value))
    return out


def gather(into: Samples, more: Samples) -> None:
    for name, values in more.items():
        into[name] += values

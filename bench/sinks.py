# SPDX-License-Identifier: Apache-2.0
"""The rows of a run in files, too: how many, and what the worker notices of it."""

from __future__ import annotations

import subprocess
import tempfile

from kit import ROOT, Bench, Row, median, pair_ratio

WRITER = ROOT / "build" / "tensorboard" / "bin" / "python"
# The same three metrics, and the file complete at the end.
PEER = """
import sys, time
from tensorboardX import SummaryWriter
n = int(sys.argv[2])
with SummaryWriter(sys.argv[1]) as w:
    t = time.perf_counter()
    for i in range(1, n + 1):
        w.add_scalar("loss", 1 / (i + 3), i)
        w.add_scalar("accuracy", 0.125 * i, i)
        w.add_scalar("step", i, i)
    w.flush()
    print(n / (time.perf_counter() - t))
"""


def peer_rows_per_s(rows: int) -> list[float]:
    """tensorboardX; nothing where scripts/tensorboard has not installed it."""
    if not WRITER.exists():
        return []
    with tempfile.TemporaryDirectory() as d:
        said = subprocess.run([WRITER, "-c", PEER, d, str(rows)], check=True, timeout=300,
                              capture_output=True, text=True).stdout
    return [float(said.split()[-1])]


def sink(b: Bench) -> list[Row]:
    rows: list[float] = []
    loud: list[float] = []
    quiet: list[float] = []
    events: list[float] = []
    theirs: list[float] = []
    for _ in range(b.sizes.reps):
        rows += b.samples("sink", "rows", "--rows", b.sizes.rows)["rows_per_s"]
        loud += b.samples("sink", "call", "--rows", b.sizes.rows)["p99_ns"]
        quiet += b.samples("sink", "call", "--rows", b.sizes.rows, "--sinks", 0)["p99_ns"]
        events += b.samples("sink", "events", "--rows", b.sizes.rows)["events_per_s"]
        theirs += peer_rows_per_s(b.sizes.rows // 20)
    grown = b.samples("sink", "memory", "--rows", 5 * b.sizes.rows)["grown_mb"]
    grown = [max(mb, 0.1) for mb in grown]  # none at all is no figure
    cost, faster = pair_ratio(loud, quiet), pair_ratio(events, theirs) if theirs else None
    return [
        Row("sink-rows", "rows in JSON, CSV and TensorBoard files, 1 worker", "rows/s", rows,
            ">= 100000", median(rows) >= 100_000),
        Row("sink-call", "p99 of a report with these sinks, 100,000 rows/s", "ns", loud,
            "<= 2 x without", cost is not None and cost <= 2, "without", quiet, cost),
        Row("sink-events", "rows of 3 scalars into an event file", "rows/s", events,
            ">= 20 x tensorboardX", faster >= 20 if faster is not None else None,
            "tensorboardX", theirs, faster,
            "" if theirs else "no tensorboardX: scripts/tensorboard"),
        Row("sink-memory", f"growth of the driver from {b.sizes.rows} to {5 * b.sizes.rows} rows",
            "MB", grown, "<= 4", max(grown) <= 4),
    ]

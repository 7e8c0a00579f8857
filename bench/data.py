# SPDX-License-Identifier: Apache-2.0
"""CSV files to columns, next to pandas, Polars, pyarrow and DuckDB on the same files."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import peers
from kit import Bench, Row, Samples, gather, median, pair_ratio

PEERS = ["pandas", "polars", "pyarrow", "duckdb"]


def compare(b: Bench, where: Path, threads: int, wrong: int) -> Row:
    """In turns; the peer of a row is the fastest of them, by its median."""
    ours: list[float] = []
    theirs: Samples = defaultdict(list)
    there = peers.data_python() is not None
    for _ in range(b.sizes.rounds):
        ours += b.text_samples("data", "read", "--dir", where, "--threads", threads, "--reps",
                               b.sizes.data_reps)["csv_mb_s"]
        for name in PEERS if there else []:
            gather(theirs, {name: peers.csv_mb_s(name, where, threads, b.sizes.data_reps)})
    fastest = max(theirs, key=lambda name: median(theirs[name]), default="")
    ratio = pair_ratio(ours, theirs[fastest]) if fastest else None
    note = ", ".join(f"{name} {median(values):.0f}" for name, values in theirs.items())
    what = f"CSV -> columns, {threads} thread{'s' if threads > 1 else ''}"
    return Row(f"data-csv-{threads}", what, "MB/s", ours,
               ">= 1.5 x the fastest peer, every value strtod's",
               ratio >= 1.5 and wrong == 0 if ratio is not None else None, fastest,
               theirs[fastest] if fastest else [], ratio,
               f"{wrong} values differ; {note or 'no peers: make bench-peers'}")


def csv(b: Bench) -> list[Row]:
    with tempfile.TemporaryDirectory(dir=b.scratch) as d:
        where = Path(d)
        b.text("data", "make", "--dir", where, "--rows", b.sizes.data_rows)
        wrong = int(b.text_samples("data", "verify", "--dir", where)["wrong"][0])
        return [compare(b, where, threads, wrong) for threads in (1, 2)]

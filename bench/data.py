# SPDX-License-Identifier: Apache-2.0
"""CSV files to columns, next to pandas, Polars, pyarrow and DuckDB on the same files; and to
batches of torch, next to Ray Data and to loaders of ready tensors."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import peers
import python
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


# --- batches of torch ----------------------------------------------------------------------------

BATCH = 1024
THREADS = 2


def files(b: Bench, where: Path) -> Path:
    found = where / "csv"
    found.mkdir()
    b.text("data", "make", "--dir", found, "--rows", b.sizes.data_rows)
    return found


def torch_batches(b: Bench) -> list[Row]:
    """From the files; a filter of half of the rows beside it."""
    package = python.package(b)
    if package is None:
        return []
    with tempfile.TemporaryDirectory(dir=b.scratch) as d:
        where = files(b, Path(d))

        def ours(what: str) -> list[float]:
            return package.samples("batches", what, where, THREADS, b.sizes.data_reps,
                                   BATCH)["mb_s"]
        calls = {what: lambda what=what: ours(what) for what in ("csv", "filter", "read")}
        calls["parse"] = lambda: b.text_samples("data", "read", "--dir", where, "--threads",
                                                THREADS, "--reps", b.sizes.data_reps)["csv_mb_s"]
        got = python.in_turns(b.sizes.rounds, calls)
        theirs: Samples = defaultdict(list)
        for _ in range(min(b.sizes.peer_reps, 1)):  # which takes minutes
            for name, words in (("csv", ()), ("filter", ("filter",))):
                theirs[name] += peers.ray_data_mb_s(where, 2, BATCH, *words) or []
    return [against_ray(name, what, bar, got, theirs) for name, what, bar in (
        ("csv", "CSV -> torch batches", 20), ("filter", "CSV -> torch batches, filtered", 40))]


def against_ray(name: str, what: str, bar: float, got: Samples, theirs: Samples) -> Row:
    ratio = median(got[name]) / median(theirs[name]) if theirs[name] else None
    base, share = ("csv", 0.9) if name == "filter" else ("parse", 0.75)
    of_base = median(got[name]) / median(got[base])
    ok = of_base >= share and (ratio is None or ratio >= bar)
    said = {"csv": "no filter", "parse": "our parse speed"}[base]
    kept = "" if name == "filter" else f"; large batches without tensors {median(got['read']):.0f}"
    return Row(f"data-torch-{name}", f"{what} of {BATCH:,}, {THREADS} threads", "MB/s", got[name],
               f">= {bar} x Ray Data, >= {share} x {said}", ok if ratio is not None else None,
               "Ray Data" if theirs[name] else "", theirs[name], ratio,
               f"{said} {median(got[base]):.0f}: {of_base:.2f} x{kept}"
               + ("" if theirs[name] else "; no Ray Data: make bench-peers"))


def ready(b: Bench) -> list[Row]:
    """Rows that are parsed already, against loaders of torch over ready tensors."""
    package = python.package(b)
    if package is None:
        return []
    with tempfile.TemporaryDirectory(dir=b.scratch) as d:
        where = files(b, Path(d))

        def of(what: str) -> list[float]:
            reps = 1 if what == "plain" else b.sizes.data_reps
            return package.samples("batches", what, where, THREADS, reps, BATCH)["mb_s"]
        calls = {what: lambda what=what: of(what) for what in ("cached", "slices", "npy", "plain")}
        got = python.in_turns(b.sizes.rounds, calls)
    return [against_torch(name, what, got) for name, what in (
        ("cached", "second epoch"), ("npy", ".npy"))]


def against_torch(name: str, what: str, got: Samples) -> Row:
    loader = median(got[name]) / median(got["plain"])
    loop = median(got[name]) / median(got["slices"])
    return Row(f"data-ready-{name}", f"{what} -> torch batches of {BATCH:,}", "MB/s", got[name],
               ">= 100 x DataLoader(TensorDataset), >= 0.5 x slice and clone",
               loader >= 100 and loop >= 0.5, "DataLoader", got["plain"], loader,
               f"slice and clone {median(got['slices']):.0f}: {loop:.2f} x")


def load(b: Bench) -> list[Row]:
    """The batches of a loader, next to the parse speed of the same files with as many threads."""
    with tempfile.TemporaryDirectory(dir=b.scratch) as d:
        where = Path(d)
        b.text("data", "make", "--dir", where, "--rows", b.sizes.data_rows)
        found: Samples = defaultdict(list)
        for _ in range(b.sizes.rounds):
            common = ("--dir", where, "--threads", 2, "--reps", b.sizes.data_reps)
            gather(found, b.text_samples("data", "read", *common))
            gather(found, b.text_samples("load", "epochs", *common))
            filtered = b.text_samples("load", "epochs", *common, "--filter", 1)
            gather(found, {"filtered_mb_s": filtered["load_mb_s"]})
        return [*load_rows(found), first_batch(b, where)]


def load_rows(found: Samples) -> list[Row]:
    ours, parse = found["load_mb_s"], found["csv_mb_s"]
    ratio, filtered = pair_ratio(ours, parse), pair_ratio(found["filtered_mb_s"], ours)
    return [Row("data-load", "CSV -> batches of 1,024, 2 threads", "MB/s", ours,
                ">= 0.75 x our parse speed", ratio >= 0.75, "parse", parse, ratio),
            Row("data-load-filter", "the same with a filter on x0", "MB/s", found["filtered_mb_s"],
                ">= 0.9 x without", filtered >= 0.9, "no filter", ours, filtered),
            Row("data-load-again", "the second epoch, from memory", "MB/s", found["again_mb_s"])]


def first_batch(b: Bench, where: Path) -> Row:
    with tempfile.TemporaryDirectory(dir=b.scratch) as runs:
        ms = b.text_samples("load", "first", "--set", where, "--dir", runs, "--reps",
                            b.sizes.reps)["first_ms"]
    return Row("data-first", "first batch of 2 workers, from their first statement", "ms", ms,
               "<= 50", median(ms) <= 50)


def memory(b: Bench) -> list[Row]:
    """A data set of links that is far larger than the limit of 256 MB, and one of 1 MB."""
    with tempfile.TemporaryDirectory(dir=b.scratch) as d, \
            tempfile.TemporaryDirectory(dir=b.scratch) as runs:
        where = Path(d)
        b.text("data", "make", "--dir", where, "--rows", b.sizes.data_rows)

        def run(mb: int) -> Samples:
            return b.text_samples("load", "memory", "--set", where, "--dir", runs, "--mb", mb)
        small, large = run(1), run(b.sizes.data_links_mb)
    over = large["pss_mb"][0] - small["pss_mb"][0]
    return [Row("data-memory", f"PSS of all processes of a run over {b.sizes.data_links_mb} MB of "
                "CSV, limit 256 MB, beyond that over one file", "MB", [max(over, 0.1)], "<= 300",
                over <= 300, note=f"{large['load_mb_s'][0]:.0f} MB/s")]

# SPDX-License-Identifier: Apache-2.0
"""Trials of tuning experiments: how many a second, next to Ray Tune, and what a hundred thousand of
them cost."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict

import peers
import python
from kit import Bench, Row, Samples, gather, median

WHAT = "trials of a function that reports 3 times, 2 at once"
MOST_MB = 200
MEMORY = "/dev/shm"  # a file system there
FLAT = 0.9  # of the first rate: a thousand take a quarter of a second, and less is no noise


def many_row(name: str, what: str, trials: int, s: Samples) -> Row:
    first, last, mb = (median(s[k]) for k in ("first_per_s", "last_per_s", "driver_mb"))
    return Row(name, f"{what}, {trials:,} trials: memory of the driver", "MB", s["driver_mb"],
               f"<= {MOST_MB}, the last 1,000 as fast as the first",
               mb <= MOST_MB and last >= FLAT * first,
               note=f"{first:,.0f} trials/s at first, {last:,.0f} at the end")


def kept(b: Bench) -> str:
    """A directory that stays until all is measured: ext4 takes no inode that was freed in the last
    five seconds, and after thousands of them looks long for another."""
    return tempfile.mkdtemp(dir=b.scratch)


def in_memory(b: Bench) -> tempfile.TemporaryDirectory[str]:
    """Where the cost of a trial is all that counts: half a minute after they were made, ext4 begins
    to write thousands of directories to the disk, on the processors that are measured."""
    return tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else b.scratch)


def samples(b: Bench, *words: object) -> Samples:
    return b.text_samples("tune", *words, "--dir", kept(b))


def trials(b: Bench) -> list[Row]:
    """In C."""
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds + 1):
        for name, words in (("apart", ()), ("wait", ("--wait", 1)), ("reuse", ("--reuse", 1))):
            got = samples(b, "trials", "--trials", b.sizes.trials, *words)
            s[name] += got["trials_per_s"]
    return [Row("tune", f"{WHAT}, in C, each in a process of its own", "trials/s", s["apart"],
                ">= 1000", median(s["apart"]) >= 1000),
            Row("tune-wait", "the same, each report decided upon", "trials/s", s["wait"]),
            Row("tune-reuse", "the same as tune, workers shared", "trials/s", s["reuse"])]


def many(b: Bench) -> list[Row]:
    n = b.sizes.many_trials
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds):
        with in_memory(b) as d:
            gather(s, b.text_samples("tune", "many", "--trials", n, "--reuse", 1, "--dir", d))
    return [many_row("tune-many", "in C", n, s)]


def package_samples(b: Bench, p: python.Package, what: str, n: int) -> Samples:
    return p.samples("trials", what, n, kept(b))


def package_trials(b: Bench) -> list[Row]:
    """In Python, in turns; Ray Tune in every round, with as few trials as it makes in a minute."""
    if not (p := python.package(b)):
        return []
    s: Samples = defaultdict(list)
    ray: list[float] = []
    n = b.sizes.trials
    for turn in range(b.sizes.rounds):
        for what, count in (("plain", n), ("torch", max(n // 5, 8)), ("reuse", 3 * n)):
            gather(s, {what: package_samples(b, p, what, count)["trials_per_s"]})
        if turn < b.sizes.peer_reps:
            ray += peers.ray_tune_per_s(20) or []
    ratio = median(s["plain"]) / median(ray) if ray else None
    fast = median(s["plain"]) >= 400
    return [Row("py-tune", f"{WHAT}, each in a process of its own", "trials/s", s["plain"],
                ">= 400, >= 400 x Ray Tune", fast and (ratio is None or ratio >= 400),
                "Ray Tune", ray, ratio, "" if ray else "no Ray: make bench-peers"),
            Row("py-tune-torch", "the same, of a function that needs torch", "trials/s",
                s["torch"], ">= 60", median(s["torch"]) >= 60),
            Row("py-tune-reuse", "the same as py-tune, reuse_actors=True", "trials/s", s["reuse"],
                ">= 3000", median(s["reuse"]) >= 3000)]


def package_many(b: Bench) -> list[Row]:
    if not (p := python.package(b)):
        return []
    n = b.sizes.many_trials
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds):
        with in_memory(b) as d:
            gather(s, p.samples("trials", "reuse", n, d))
    return [many_row("py-tune-many", "tune.run, reuse_actors=True", n, s)]

# SPDX-License-Identifier: Apache-2.0
"""Searchers and ASHA: how fast they decide, and how good what they find is."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

import peers
from kit import ROOT, Bench, CannotMeasure, Grid, Row, Samples, gather, median, number, pair_ratio

KINDS = {"tpe": "TPE", "cmaes": "CMA-ES", "gp": "Gaussian process"}
KEPT = ROOT / "bench" / "peers" / "optuna.json"
TABLE = ROOT / "bench" / "curves.txt"
WORKERS, GRACE, FACTOR = 4, 1, 3  # of the replays


def speed(b: Bench) -> list[Row]:
    """In turns, each the last 100 proposals of a study."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(min(b.sizes.reps, 5)):
        ours += b.text_samples("search", "speed", "--trials",
                               b.sizes.search_trials)["proposals_per_s"]
        theirs += peers.optuna_per_s(b.sizes.search_trials)
    ratio = pair_ratio(ours, theirs)
    what = f"proposals of TPE at {b.sizes.search_trials} trials, 10 parameters"
    return [Row("search-speed", what, "/s", ours, ">= 20 x Optuna's TPE",
                ratio >= 20 if ratio else None, "Optuna", theirs, ratio,
                "" if theirs else "no Optuna: make bench-peers")]


def kept_quartiles() -> dict[tuple[str, str], list[float]]:
    try:
        said: dict[str, Any] = json.loads(KEPT.read_text())
        return {(f["sampler"], f["function"]): f["quartiles"] for f in said["found"]}
    except (OSError, ValueError, KeyError) as e:
        raise CannotMeasure(f"{KEPT}: {e!r}") from e


def medians(b: Bench, kind: str, functions: list[str]) -> dict[str, float]:
    """A program for each function: all of them by a Gaussian process take many minutes."""
    found: Samples = defaultdict(list)
    for name in functions:
        gather(found, b.text_samples("search", "quality", "--searcher", kind, "--function", name,
                                     "--trials", b.sizes.quality_trials, "--seeds",
                                     b.sizes.quality_seeds))
    return {name: values[0] for name, values in found.items()}


def quality(b: Bench) -> list[Row]:
    kept = kept_quartiles()
    functions = sorted({function for _, function in kept})
    chance = medians(b, "random", functions)
    rows = []
    lines = []
    for kind, what in KINDS.items():
        ours = medians(b, kind, functions)
        good = [f for f in functions if ours[f] <= kept[kind, f][2]]
        worse = [f for f in functions if not ours[f] < min(chance[f], kept["random", f][1])]
        share = 100 * len(good) / len(functions)
        bad = [f for f in functions if f not in good]
        notes = [*(f"beyond: {', '.join(bad)}" for _ in bad[:1]),
                 *(f"no better than random: {', '.join(worse)}" for _ in worse[:1])]
        rows.append(Row(f"search-{kind}", f"{what}: functions with a median of "
                        f"{b.sizes.quality_seeds} seeds within Optuna's worse quartile", "%",
                        [share], ">= 80, better than random on all", share >= 80 and not worse,
                        note="; ".join(notes)))
        lines += [[kind, f, number(ours[f]), *map(number, kept[kind, f]), number(chance[f])]
                  for f in functions]
    b.grids.append(Grid(f"Best value after {b.sizes.quality_trials} trials",
                        ["searcher", "function", "ours: median", "Optuna: 25 %", "50 %", "75 %",
                         "random"], lines))
    return rows


def asha(b: Bench) -> list[Row]:
    orders = b.sizes.quality_seeds
    ours = b.text_samples("asha", "--table", TABLE, "--orders", orders, "--workers", WORKERS,
                          "--grace", GRACE, "--factor", FACTOR)
    theirs = peers.ray_asha(TABLE, orders, WORKERS, GRACE, FACTOR)
    found = pair_ratio(ours["found"], theirs["found"])
    total = math.fsum(ours["found"]) / math.fsum(theirs["found"]) if theirs["found"] else None
    what = f"epochs of ASHA until the best of 1,000 curves, {orders} orders"
    note = f"of {median(ours['spent']):,.0f} for all" if total else "no Ray: make bench-peers"
    return [Row("search-asha", what, "epochs", ours["found"], "<= 1.1 x Ray's ASHA",
                max(found, total) <= 1.1 if found and total else None, "Ray", theirs["found"],
                found, note)]

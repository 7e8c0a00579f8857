# SPDX-License-Identifier: Apache-2.0
"""Collectives against OpenMPI's and gloo's: sweeps over sizes, in turns."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Callable

import peers
from kit import Bench, CannotMeasure, Grid, Row, median, pair_ratio

Sweep = dict[int, float]  # bytes: µs of a call, the median
KB, MB = 1 << 10, 1 << 20


def name_of(size: int) -> str:
    for unit, text in ((MB, "MB"), (KB, "KB")):
        if size >= unit:
            return f"{size / unit:g} {text}"
    return f"{size} B"


class Contest:
    """All contestants over the same sizes, one after the other, again and again."""

    def __init__(self, b: Bench, op: str, ranks: int, factor: int) -> None:
        self.b, self.op, self.ranks, self.factor = b, op, ranks, factor
        self.sweeps: dict[str, list[Sweep]] = defaultdict(list)

    def ours(self, private: bool) -> Sweep:
        s = self.b.sizes
        said = self.b.manta("bench", "comm", "-n", self.ranks, "--op", self.op, "--to", s.comm_to,
                            "--factor", self.factor, "--ms", s.comm_ms,
                            *(["--private"] if private else []))
        if said["wrong"]:
            raise CannotMeasure(f"{self.op}: {said['wrong']} wrong values")
        return {row["bytes"]: row["p50_us"] for row in said["rows"]}

    def openmpi(self) -> Sweep | None:
        s = self.b.sizes
        return peers.mpi_comm(self.op, self.ranks, 4, s.comm_to, self.factor, s.comm_ms,
                              self.ranks > (os.cpu_count() or 1))

    def gloo(self) -> Sweep | None:
        s = self.b.sizes
        return peers.gloo_comm(self.ranks, 4, s.comm_to, self.factor, s.comm_ms)

    def hold(self, with_gloo: bool) -> None:
        for i in range(self.b.sizes.comm_reps):
            turns: dict[str, Callable[[], Sweep | None]] = {
                "shared": lambda: self.ours(False), "OpenMPI": self.openmpi,
                "private": lambda: self.ours(True)}
            if with_gloo and i < self.b.sizes.gloo_reps:
                turns["gloo"] = self.gloo
            for name, sweep in turns.items():
                if (result := sweep()) is not None:
                    self.sweeps[name].append(result)

    def sizes(self) -> list[int]:
        return sorted(self.sweeps["shared"][0])

    def us(self, name: str, size: int) -> float:
        return median([sweep[size] for sweep in self.sweeps[name]])

    def times_faster(self, ours: str, peer: str, size: int) -> float | None:
        return pair_ratio([sweep[size] for sweep in self.sweeps[peer]],
                          [sweep[size] for sweep in self.sweeps[ours]])

    def row(self, name: str, what: str, ours: str, peer: str, bar: float,
            sizes: Callable[[int], bool] = lambda _: True) -> Row:
        """A bar over some of the sizes: the worst of them counts."""
        those = [size for size in self.sizes() if sizes(size)] or self.sizes()[-1:]
        ratios = {size: r for size in those if (r := self.times_faster(ours, peer, size))}
        text = f">= {bar:g} x {peer}"
        if not ratios:
            return Row(name, what, "us", [self.us(ours, size) for size in those], text,
                       note=f"no {peer}: make bench-peers")
        worst = min(ratios, key=lambda size: ratios[size])
        return Row(name, what, "x", list(ratios.values()), text, ratios[worst] >= bar, peer,
                   ratio=ratios[worst], note=f"worst at {name_of(worst)}: "
                   f"{self.us(ours, worst):.4g} us, {peer} {self.us(peer, worst):.4g}")

    def grid(self, title: str) -> Grid:
        names = [n for n in ("shared", "private", "OpenMPI", "gloo") if self.sweeps[n]]
        pairs = [(o, p) for p in names[2:] for o in names[:2]]
        lines = []
        for size in self.sizes():
            ratios = [self.times_faster(o, p, size) for o, p in pairs]
            lines.append([name_of(size), *(f"{self.us(n, size):.4g}" for n in names),
                          *(f"{r:.2f}" if r else "" for r in ratios)])
        return Grid(title, ["size", *(f"{n}, us" for n in names),
                            *(f"{o} / {p}" for o, p in pairs)], lines)


def allreduce(b: Bench) -> list[Row]:
    c = Contest(b, "allreduce", 2, 4)
    c.hold(with_gloo=True)
    b.grids.append(c.grid("All-reduce, f32, 2 ranks, in place: median of the medians"))
    what = "all-reduce f32, 2 ranks"
    return [
        c.row("comm-shared-small", f"{what}, shared memory, below 4 KB", "shared", "OpenMPI", 1,
              lambda n: n < 4 * KB),
        c.row("comm-shared", f"{what}, shared memory, 4 KB to 256 MB", "shared", "OpenMPI", 3,
              lambda n: n >= 4 * KB),
        c.row("comm-shared-gloo", f"{what}, shared memory", "shared", "gloo", 10),
        c.row("comm-private-small", f"{what}, private, to 64 KB", "private", "OpenMPI", 1.3,
              lambda n: n <= 64 * KB),
        c.row("comm-private", f"{what}, private, 256 KB to 16 MB", "private", "OpenMPI", 1,
              lambda n: 64 * KB < n < 64 * MB),
        c.row("comm-private-large", f"{what}, private, 64 MB and more", "private", "OpenMPI", 2,
              lambda n: n >= 64 * MB),
        c.row("comm-private-gloo", f"{what}, private", "private", "gloo", 4),
    ]


def oversubscribed(b: Bench) -> list[Row]:
    rows = []
    for ranks in (4, 8):
        c = Contest(b, "allreduce", ranks, 16)
        c.hold(with_gloo=False)
        b.grids.append(c.grid(f"All-reduce, f32, {ranks} ranks on {os.cpu_count()} cores; OpenMPI "
                              "yields when idle"))
        rows += [c.row(f"comm-{ranks}-{memory}", f"all-reduce f32, {ranks} ranks, {memory} memory",
                       memory, "OpenMPI", 1) for memory in ("shared", "private")]
    return rows


def others(b: Bench) -> list[Row]:
    rows = []
    for op in ("broadcast", "allgather", "reduce_scatter"):
        c = Contest(b, op, 2, 16)
        c.hold(with_gloo=False)
        b.grids.append(c.grid(f"{op}, f32, 2 ranks"))
        rows += [c.row(f"comm-{op}-{memory}", f"{op} f32, 2 ranks, {memory} memory", memory,
                       "OpenMPI", 1) for memory in ("shared", "private")]
    return rows

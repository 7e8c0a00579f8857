# SPDX-License-Identifier: Apache-2.0
"""Collectives against OpenMPI's and gloo's, size by size, in turns."""

from __future__ import annotations

import itertools
import os
import time
from collections import defaultdict
from typing import Callable

import netns
import peers
from kit import (CALM, Bench, CannotMeasure, Grid, Others, Row, await_calm, median, number,
                 pair_ratio, percentile)

KB, MB = 1 << 10, 1 << 20
NEAR_NS = 150  # there and back between cores that share a cache
TRIES = 4


def name_of(size: int) -> str:
    for unit, text in ((MB, "MB"), (KB, "KB")):
        if size >= unit:
            return f"{size / unit:g} {text}"
    return f"{size} B"


def placement(b: Bench) -> str:
    """Where the host has put our cores just now: how long a cache line takes there and back. On a
    virtual machine this changes from second to second, and all that ranks share goes with it."""
    if (os.cpu_count() or 1) < 2:
        return "near"
    return "near" if b.samples("comm", "bounce")["bounce_ns"][0] < NEAR_NS else "far"


class Contest:
    """The contestants over the same sizes: for each size one after the other, again and again. A
    round during which the placement changed is made again."""

    def __init__(self, b: Bench, op: str, ranks: int, factor: int) -> None:
        self.b, self.op, self.ranks, self.factor = b, op, ranks, factor
        self.rounds: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
        self.gloo: dict[int, list[float]] = defaultdict(list)

    def ours(self, size: int, private: bool) -> float | None:
        said = self.b.manta("bench", "comm", "-n", self.ranks, "--op", self.op, "--from", size,
                            "--to", size, "--ms", self.b.sizes.comm_ms,
                            *(["--private"] if private else []))
        if said["wrong"]:
            raise CannotMeasure(f"{self.op}: {said['wrong']} wrong values")
        return said["rows"][0]["p50_us"] if said["rows"] else None

    def openmpi(self, size: int) -> float | None:
        said = peers.mpi_comm(self.op, self.ranks, size, size, 2, self.b.sizes.comm_ms,
                              self.ranks > (os.cpu_count() or 1))
        return said.get(size) if said else None

    def round(self, size: int) -> None:
        """Anew if the placement changed meanwhile, or if others wanted the processors while there
        is patience; a machine that is never at rest counts too."""
        by = time.monotonic() + self.b.patience_s
        for left in reversed(range(TRIES)):
            await_calm(by)
            others, before = Others(), placement(self.b)
            us = {"shared": self.ours(size, False), "OpenMPI": self.openmpi(size),
                  "private": self.ours(size, True)}
            if us["shared"] is None:  # too small to be divided among the ranks
                return
            calm = others.share() < CALM or time.monotonic() > by
            if (before == placement(self.b) and calm) or not left:
                self.rounds[before, size].append({k: v for k, v in us.items() if v is not None})
                return

    def hold(self, with_gloo: bool = False) -> None:
        s = self.b.sizes
        for rep in range(s.comm_reps):
            size = 4
            while size <= s.comm_to:
                self.round(size)
                size *= self.factor
            swept = peers.gloo_comm(self.ranks, 4, s.comm_to, self.factor, s.comm_ms) \
                if with_gloo and rep < s.gloo_reps else None
            for size, us in (swept or {}).items():
                self.gloo[size].append(us)

    def sizes(self, where: str) -> list[int]:
        return sorted(size for at, size in self.rounds if at == where)

    def us(self, where: str, size: int, name: str) -> float | None:
        them = self.gloo[size] if name == "gloo" else \
            [r[name] for r in self.rounds[where, size] if name in r]
        return median(them) if them else None

    def times_faster(self, where: str, size: int, ours: str, peer: str) -> float | None:
        """The median over pairs; gloo has none, its sweeps take too long."""
        rounds = self.rounds[where, size]
        if peer == "gloo":
            return pair_ratio(self.gloo[size][:1], [u]) \
                if (u := self.us(where, size, ours)) and self.gloo[size] else None
        return pair_ratio([r[peer] for r in rounds if peer in r],
                          [r[ours] for r in rounds if peer in r])

    def row(self, name: str, what: str, ours: str, peer: str, bar: float,
            fits: Callable[[int], bool] = lambda _: True) -> Row:
        """A bar over some of the sizes, in every placement that was seen: the worst counts."""
        those = [key for key in sorted(self.rounds) if fits(key[1])] or sorted(self.rounds)[-1:]
        ratios = {k: r for k in those if (r := self.times_faster(*k, ours, peer))}
        text = f">= {bar:g} x {peer}"
        if not ratios:
            return Row(name, what, "us", [u for k in those if (u := self.us(*k, ours))], text,
                       note=f"no {peer}: make bench-peers")
        worst = min(ratios, key=lambda k: ratios[k])
        note = f"worst at {name_of(worst[1])}, {worst[0]}: {number(self.us(*worst, ours))} us, " \
               f"{peer} {number(self.us(*worst, peer))}"
        return Row(name, what, "x", list(ratios.values()), text, ratios[worst] >= bar, peer,
                   ratio=ratios[worst], note=note)

    def grids(self, title: str) -> list[Grid]:
        """One per placement: µs of each, and how many times faster than each peer ours are."""
        out = []
        for where in ("near", "far"):
            names = [n for n in ("shared", "private", "OpenMPI", "gloo")
                     if any(self.us(where, size, n) for size in self.sizes(where))]
            pairs = [(o, p) for p in names[2:] for o in names[:2]]
            lines = [[name_of(size), str(len(self.rounds[where, size])),
                      *(number(self.us(where, size, n)) for n in names),
                      *(number(self.times_faster(where, size, o, p)) for o, p in pairs)]
                     for size in self.sizes(where)]
            if lines:
                out.append(Grid(f"{title}; cores {where}", ["size", "rounds",
                                *(f"{n}, us" for n in names), *(f"{p} : {o}" for o, p in pairs)],
                                lines))
        return out


def allreduce(b: Bench) -> list[Row]:
    c = Contest(b, "allreduce", 2, b.sizes.comm_factor)
    c.hold(with_gloo=True)
    b.grids += c.grids("All-reduce, f32, 2 ranks")
    what = "all-reduce f32, 2 ranks"
    return [
        c.row("comm-shared-small", f"{what}, shared memory, below 4 KB", "shared", "OpenMPI", 1,
              lambda n: n < 4 * KB),
        c.row("comm-shared", f"{what}, shared memory, 4 KB to 256 MB", "shared", "OpenMPI", 3,
              lambda n: n >= 4 * KB),
        c.row("comm-shared-gloo", f"{what}, shared memory", "shared", "gloo", 10),
        c.row("comm-private-small", f"{what}, private, to 64 KB", "private", "OpenMPI", 1.3,
              lambda n: n <= 64 * KB),
        c.row("comm-private", f"{what}, private, 256 KB to 16 MB", "private", "OpenMPI", 1.1,
              lambda n: 64 * KB < n < 64 * MB),
        c.row("comm-private-large", f"{what}, private, 64 MB and more", "private", "OpenMPI", 2,
              lambda n: n >= 64 * MB),
        c.row("comm-private-gloo", f"{what}, private", "private", "gloo", 4),
    ]


def oversubscribed(b: Bench) -> list[Row]:
    rows = []
    for ranks in (4, 8):
        c = Contest(b, "allreduce", ranks, 4 * b.sizes.comm_factor)
        c.hold()
        b.grids += c.grids(f"All-reduce, f32, {ranks} ranks on {os.cpu_count()} cores, OpenMPI "
                           "yielding")
        rows += [c.row(f"comm-{ranks}-{memory}", f"all-reduce f32, {ranks} ranks, {memory} memory",
                       memory, "OpenMPI", 1) for memory in ("shared", "private")]
    return rows


def others(b: Bench) -> list[Row]:
    rows = []
    for op in ("broadcast", "allgather", "reduce_scatter"):
        c = Contest(b, op, 2, 4 * b.sizes.comm_factor)
        c.hold()
        b.grids += c.grids(f"{op}, f32, 2 ranks")
        rows += [c.row(f"comm-{op}-{memory}", f"{op} f32, 2 ranks, {memory} memory", memory,
                       "OpenMPI", 1) for memory in ("shared", "private")]
    return rows


def limit(b: Bench) -> list[Row]:
    """What one half of the bytes takes to add, and to copy, is what an all-reduce cannot beat."""
    calls = max(5, b.sizes.reps)
    s = b.samples("comm", "limit", "--mb", b.sizes.limit_mb, "--calls", calls)
    part = [(a + c) / t * 100 for a, c, t in zip(s["add_us"], s["copy_us"], s["allreduce_us"])]
    half = b.sizes.limit_mb * MB / 2
    add, copy = (half / median(s[name]) / 1e3 for name in ("add_us", "copy_us"))
    return [Row("comm-limit", f"all-reduce of {b.sizes.limit_mb} MB in shared memory, of the limit",
                "%", part, ">= 60", median(part) >= 60,
                note=f"{number(median(s['allreduce_us']) / 1e3)} ms; both ranks at once add "
                f"{add:.1f} and copy {copy:.1f} GB/s each")]


def waiting(b: Bench) -> list[Row]:
    rows = []
    for ranks in (2, 4):
        cpu = b.samples("comm", "wait", "--workers", ranks, "--ms", b.sizes.wait_ms,
                        "--calls", max(2, b.sizes.comm_reps // 3))["wait_cpu_ms"]
        rows.append(Row(f"comm-wait-{ranks}", f"CPU time of a rank of {ranks} that waits "
                        f"{b.sizes.wait_ms} ms", "ms", cpu, "<= 1", median(cpu) <= 1))
    return rows


def death(b: Bench) -> list[Row]:
    """Of shared buffers with a core for each rank, of private ones with two ranks per core."""
    mb, cores = b.sizes.big_mb, os.cpu_count() or 1
    what = f"SIGKILL in a {mb} MB all-reduce -> returned on all others"
    idle = b.samples("comm", "death", "--mb", mb, "--kills", b.sizes.reps)["death_ms"]
    own = b.samples("comm", "death", "--mb", mb, "--kills", b.sizes.reps, "--private",
                    1)["death_ms"]
    busy = b.samples("comm", "death", "--mb", mb, "--kills", b.sizes.kills, "--private", 1,
                     "--workers", 2 * cores)["death_ms"]
    p99 = percentile(busy, 99)
    return [
        Row("comm-death", f"{what}, 2 ranks, shared memory", "ms", idle, "p50 <= 1",
            median(idle) <= 1),
        Row("comm-death-private", f"{what}, 2 ranks, private memory", "ms", own, "p50 <= 1",
            median(own) <= 1),
        Row("comm-death-busy", f"{what}, {2 * cores} ranks, private memory", "ms", busy,
            "p99 <= 30", p99 <= 30, note=f"p99 {p99:.1f} over {b.sizes.kills} kills"),
    ]


def storm(b: Bench) -> list[Row]:
    s = b.samples("comm", "storm", "--kills", b.sizes.storm_kills)
    wrong, checked = int(s["wrong"][0]), int(s["checked"][0])
    return [Row("comm-storm", "a random rank of 3 killed during all-reduces -> returned on others",
                "ms", s["death_ms"], f"{b.sizes.storm_kills} kills, no hang, no wrong sum",
                wrong == 0, note=f"{checked:,} sums were right, {wrong} wrong, slowest "
                f"{max(s['death_ms']):.1f} ms")]


def death_on_another_host(b: Bench) -> list[Row]:
    if not b.can_span_hosts():
        return []
    with netns.TwoHosts() as hosts:
        ms = b.samples("comm", "death", "--mb", b.sizes.big_mb, "--kills", b.sizes.reps,
                       "--workers", 4, "--private", 1,
                       MANTA_HOSTS=hosts.manta_hosts(b.env["MANTA_BIN"], 2))["death_ms"]
    return [Row("comm-death-hosts", f"SIGKILL in a {b.sizes.big_mb} MB all-reduce -> returned on "
                "all others, 4 ranks on two hosts", "ms", ms, "<= 1000", max(ms) <= 1000,
                note=f"slowest {number(max(ms))}")]


def same(b: Bench) -> list[Row]:
    """The same job twice, with and without overlap, for two sizes of buckets, on one host and on
    two: how many of all end with the bits of the first."""
    digests: list[float] = []

    def run_all(**env: str) -> None:
        for overlap, kb in itertools.product((0, 1), (1 << 10, 25 << 10)):
            for _ in range(2):
                digests.extend(set(b.samples("same", "--mb", b.sizes.same_mb, "--workers", 4,
                                             "--overlap", overlap, "--bucket-kb", kb,
                                             **env)["digest"]))

    run_all()
    if spans := b.can_span_hosts():
        with netns.TwoHosts() as hosts:
            run_all(MANTA_HOSTS=hosts.manta_hosts(b.env["MANTA_BIN"], 2))
    runs = 16 if spans else 8
    equal = digests.count(digests[0]) if len(digests) == runs else 0  # ranks of a run differ
    return [Row("comm-same", f"of {runs} data-parallel trainings on 4 ranks, with the same bits at "
                "the end", "runs", [float(equal)], str(runs), equal == runs,
                note="twice; overlap on, off; buckets of 1 and 25 MB; "
                     + ("one host, two" if spans else "one host"))]

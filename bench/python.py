# SPDX-License-Identifier: Apache-2.0
"""The Python package against Ray Train and torchrun, and against a plain process."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Callable

import peers
from kit import ROOT, Bench, CannotMeasure, Row, Samples, gather, median, pair_ratio, parse

PROGRAMS = ROOT / "bench" / "py"


class Package:
    """The package as it is installed in an interpreter, or lies on PYTHONPATH."""

    def __init__(self, b: Bench, python: Path) -> None:
        self.b, self.python = b, python
        known = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        path = [str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.env = {**known, "PYTHONPATH": ":".join(path), "MANTA_RESULTS": str(b.scratch)}

    def text(self, program: str, *args: object) -> str:
        return self.b.run(self.python, PROGRAMS / f"{program}.py", *args, env=self.env)

    def samples(self, program: str, *args: object) -> Samples:
        return parse(self.text(program, *args))

    def since(self, program: str, *args: object) -> Samples:
        """Of a program that wants to know when it was started."""
        return self.samples(program, time.monotonic_ns(), *args)


def has_package(python: Path) -> bool:
    find = "import sys; from importlib.util import find_spec as f; " \
           "sys.exit(not (f('manta') and f('torch')))"
    return subprocess.run([python, "-c", find], stdin=subprocess.DEVNULL).returncode == 0


def package(b: Bench) -> Package | None:
    """None, with a word about it, where no interpreter has torch and the package."""
    python = b.python or peers.torch_python()
    if python and has_package(python):
        return Package(b, python)
    b.say("nothing of the Python package is measured: " +
          (f"{python} has not both manta and torch" if python else "no torch") +
          ": scripts/pyenv --install")
    return None


def in_turns(rounds: int, calls: dict[str, Callable[[], list[float]]]) -> Samples:
    """Each call once a round, every other round in the reverse order."""
    out: Samples = defaultdict(list)
    for turn in range(rounds):
        for name in list(calls)[::-1 if turn % 2 else 1]:
            out[name] += calls[name]()
    return out


def versus(b: Bench, row: Row, name: str, peer: str, theirs: list[float]) -> list[Row]:
    """The same figure of ours beside a peer's: how many times sooner we are. No bar. Nothing where
    peers are not wanted."""
    if not b.sizes.peer_reps:
        return []
    ratio = median(theirs) / median(row.ours) if theirs else None
    return [Row(name, row.what, row.unit, row.ours, peer_name=peer, peer=theirs, ratio=ratio,
                note="" if theirs else f"no {peer}: make bench-peers")]


def once_ray(job: str, what: str, n: int = 1) -> Callable[[], list[float]]:
    return lambda: (peers.ray(job, n) or {}).get(what, [])


# --- Start ---------------------------------------------------------------------------------------


def start(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    p.since("start", "line")  # what is read from the disk for the first time
    s = in_turns(b.sizes.py_reps, {
        "import": lambda: p.since("plain", "import")["import_ms"],
        "ours": lambda: p.since("start", "line")["start_ms"],
        "torch": lambda: p.since("start", "line", "torch")["start_ms"],
    })
    theirs = in_turns(b.sizes.peer_reps, {"torchrun": lambda: peers.torchrun("start") or [],
                                          "ray": once_ray("start", "start_ms")})
    bar = "<= import torch + 300 ms"
    rows = []
    for name, key, how in (("py-start", "ours", ""),
                           ("py-start-torch", "torch", ", which imports torch as well")):
        late = median([mine - theirs - 300 for mine, theirs in zip(s[key], s["import"])])
        rows.append(Row(name, f"fresh interpreter{how} -> first line on 2 torch workers", "ms",
                        s[key], bar, late <= 0, "import torch", s["import"],
                        pair_ratio(s[key], s["import"])))
    return [*rows, *versus(b, rows[0], "py-start-torchrun", "torchrun", theirs["torchrun"]),
            *versus(b, rows[0], "py-start-ray", "Ray Train", theirs["ray"])]


def fit(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s: Samples = defaultdict(list)
    p.since("fit")  # what is read from the disk for the first time
    theirs: list[float] = []
    for _ in range(b.sizes.py_reps):
        gather(s, p.since("fit"))
    for _ in range(b.sizes.peer_reps):
        theirs += (peers.ray("fit") or {}).get("fit_ms", [])
    ratio = median(theirs) / median(s["fit_ms"]) if theirs else None
    return [Row("py-fit", "fresh interpreter -> TorchTrainer.fit() of nothing has returned, 2 "
                "workers", "ms", s["fit_ms"], ">= 10 x sooner than Ray Train",
                None if ratio is None else ratio >= 10, "Ray Train", theirs, ratio,
                "" if theirs else "no Ray Train: make bench-peers"),
            Row("py-fit-again", "a second fit() of nothing in the same driver", "ms",
                s["again_ms"])]


def step(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s = in_turns(b.sizes.py_reps, {"plain": lambda: p.since("plain", "step")["step_ms"],
                                   "ours": lambda: p.since("start", "step")["start_ms"]})
    ratio = pair_ratio(s["ours"], s["plain"])
    return [Row("py-step", "fresh interpreter -> first optimizer step done on both", "ms",
                s["ours"], "<= 1.15 x a plain process", ratio is not None and ratio <= 1.15,
                "a plain process", s["plain"], ratio)]


def again(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds):
        gather(s, p.samples("again", max(2, b.sizes.reps // 2)))
    ray = in_turns(b.sizes.peer_reps, {"ray": once_ray("start", "again_ms")})["ray"]
    new = "new trainer in the same driver -> first line, group up"
    rows = [
        Row("py-again", "second run on a trainer, workers kept, whole", "ms", s["again_ms"],
            "<= 5", median(s["again_ms"]) <= 5),
        Row("py-again-fresh", "second run on a trainer, fresh processes -> first line, group up",
            "ms", s["fresh_first_ms"], "<= 40", median(s["fresh_first_ms"]) <= 40,
            note=f"whole {median(s['fresh_ms']):.3g} ms; a process that waits for it has "
                 f"{median(s['ahead_mb']):.1f} MB of its own"),
        Row("py-again-at-once", "the same, called the moment the run before has returned", "ms",
            s["at_once_first_ms"]),
        Row("py-new", f"{new}, manta", "ms", s["new_manta_ms"], "<= 150",
            median(s["new_manta_ms"]) <= 150),
        Row("py-new-gloo", f"{new}, gloo", "ms", s["new_gloo_ms"], "<= 400",
            median(s["new_gloo_ms"]) <= 400),
    ]
    return [*rows, *versus(b, rows[1], "py-again-ray", "Ray Train", ray),
            *versus(b, rows[3], "py-new-ray", "Ray Train", ray)]


def runs(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s = p.samples("runs", b.sizes.py_runs)
    late = {k.removesuffix("_late"): v[0] for k, v in s.items() if k.endswith("_late")}
    early = {k.removesuffix("_early"): v[0] for k, v in s.items() if k.endswith("_early")}
    grown = {k: late[k] - early[k] for k in late}
    flat = all(grown[k] <= (2 if k.endswith("_mb") else 0) for k in grown)
    text = ", ".join(f"{k.replace('_', ' ')} {early[k]:g} to {late[k]:g}" for k in sorted(late))
    return [Row("py-runs", "runs on one trainer; descriptors, processes and memory", "runs",
                [float(b.sizes.py_runs)], "300, all flat", flat, note=text)]


# --- Reports and checkpoints ---------------------------------------------------------------------


def report(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds):
        gather(s, p.samples("report", b.sizes.py_rows, max(2, b.sizes.reps)))
    ray = in_turns(b.sizes.peer_reps, {"ray": once_ray("report", "rows_per_s", 5)})["ray"]
    rows = [
        Row("py-report", "sgd.report(loss=, i=), 2 workers, callback on", "us", s["report_us"],
            "<= 5", median(s["report_us"]) <= 5),
        Row("py-rows", "aligned rows to a callback, 2 workers, all checked", "rows/s",
            s["rows_per_s"], ">= 50000", median(s["rows_per_s"]) >= 50_000),
    ]
    beside = versus(b, rows[1], "py-rows-ray", "Ray Train", ray)
    for row in beside:  # more is better
        row.ratio = 1 / row.ratio if row.ratio else None
    return [*rows, *beside]


def saves(b: Bench, p: Package, device: str) -> Samples:
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds):
        gather(s, p.samples("checkpoint", b.sizes.state_mb, max(2, b.sizes.reps // 2),
                            b.sizes.step_ms, device))
    return s


def checkpoint(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s = saves(b, p, "cpu")
    ray = in_turns(b.sizes.peer_reps, {"ray": once_ray("checkpoint", "save_ms", 5)})["ray"]
    ratio = pair_ratio(s["save_ms"], s["copy_ms"])
    what = f"stall of a {b.sizes.state_mb} MB state_dict checkpoint"
    row = Row("py-stall", what, "ms", s["save_ms"], "<= 2 x memcpy",
              ratio is not None and ratio <= 2, "memcpy", s["copy_ms"], ratio)
    return [row, Row("py-stall-first", f"{what}, the first", "ms", s["first_ms"]),
            Row("py-stall-torch", what, "ms", s["save_ms"], peer_name="torch.save to /dev/shm",
                peer=s["torch_save_ms"], ratio=pair_ratio(s["torch_save_ms"], s["save_ms"])),
            *versus(b, row, "py-stall-ray", "Ray Train", ray),
            *(checkpoint_of_gpu(b, p) if Path("/dev/nvidia0").exists() else [])]


def fit_checkpoint(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.rounds):
        with tempfile.TemporaryDirectory(dir=b.scratch) as d:
            gather(s, p.samples("fit_checkpoint", b.sizes.state_mb, max(2, b.sizes.reps // 2),
                                b.sizes.step_ms, d))
    ratio = pair_ratio(s["dict_ms"], s["copy_ms"])
    what = f"stall of session.report() with a checkpoint of {b.sizes.state_mb} MB"
    return [Row("py-fit-stall", f"{what}, a dict", "ms", s["dict_ms"], "<= 2 x memcpy",
                ratio is not None and ratio <= 2, "memcpy", s["copy_ms"], ratio),
            Row("py-fit-directory", f"{what}, a directory that is moved", "ms", s["directory_ms"],
                "<= 5", median(s["directory_ms"]) <= 5)]


def checkpoint_of_gpu(b: Bench, p: Package) -> list[Row]:
    s = saves(b, p, "cuda")
    ratio = pair_ratio(s["save_ms"], s["copy_ms"])
    what = f"stall of a {b.sizes.state_mb} MB checkpoint of CUDA tensors"
    return [Row("py-stall-cuda", what, "ms", s["save_ms"], "<= 1.5 x the pinned copy",
                ratio is not None and ratio <= 1.5, "pinned copy", s["copy_ms"], ratio),
            Row("py-stall-cuda-first", f"{what}, the first", "ms", s["first_ms"])]


# --- Losing a worker -----------------------------------------------------------------------------


def recover_once(p: Package, backend: str, device: str = "cpu") -> list[float]:
    with tempfile.TemporaryDirectory(dir=p.b.scratch) as d:
        return p.samples("recover", backend, p.b.sizes.py_kills, d, 0, device)["recover_ms"]


COLD_S = 3  # from the first line of a fresh driver's train function to the kill


def recover_cold(p: Package) -> list[float]:
    with tempfile.TemporaryDirectory(dir=p.b.scratch) as d:
        return p.samples("recover", "manta", 1, d, COLD_S)["recover_ms"]


def recover(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s = in_turns(b.sizes.rounds, {"manta": lambda: recover_once(p, "manta"),
                     "gloo": lambda: recover_once(p, "gloo"),
                     "cold": lambda: recover_cold(p)})
    theirs = in_turns(b.sizes.peer_reps, {
        "torchrun": lambda: peers.torchrun("recover", 2) or [],
        "ray": once_ray("recover", "recover_ms", 2)})
    what = "SIGKILL of 1 of 2 DDP workers -> both train again from the checkpoint"
    rows = [
        Row("py-recover", f"{what}, manta", "ms", s["manta"], "<= 120", median(s["manta"]) <= 120),
        Row("py-recover-gloo", f"{what}, gloo", "ms", s["gloo"], "<= 600",
            median(s["gloo"]) <= 600),
        Row("py-recover-cold", f"the same, {COLD_S} s after the first line of a fresh driver",
            "ms", s["cold"], "<= 500", median(s["cold"]) <= 500),
    ]
    return [*rows, *versus(b, rows[0], "py-recover-torchrun", "torchrun", theirs["torchrun"]),
            *versus(b, rows[0], "py-recover-ray", "Ray Train", theirs["ray"]),
            *(recover_on_gpu(b, p) if Path("/dev/nvidia0").exists() else [])]


def recover_on_gpu(b: Bench, p: Package) -> list[Row]:
    ms = recover_once(p, "manta", "cuda")
    return [Row("py-recover-cuda", "SIGKILL of 1 of 2 DDP workers that share a GPU -> both train "
                "again", "ms", ms, "<= 1000", median(ms) <= 1000)]


# --- Steps, memory, bits -------------------------------------------------------------------------


def ddp(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    turns = 3 * b.sizes.py_reps
    m = p.samples("ddp", "mlp", 64, max(1, b.sizes.py_steps // 10), turns)
    r = p.samples("ddp", "resnet18", b.sizes.py_batch, max(1, b.sizes.py_steps // 60), turns)
    times = pair_ratio(m["gloo_ms"], m["manta_ms"])
    part = median([(g - m) / (g - w) if g > w else 1.0
                   for g, m, w in zip(r["gloo_ms"], r["manta_ms"], r["without_ms"])])
    return [
        Row("py-ddp-mlp", "DDP step, 784-512-512-10, batch 64, 2 ranks", "ms", m["manta_ms"],
            ">= 1.5 x as fast as gloo", times is not None and times >= 1.5, "gloo", m["gloo_ms"],
            times, f"communication removed {median(m['without_ms']):.3g}"),
        Row("py-ddp-resnet", f"DDP step, ResNet-18 on 32 x 32, batch {b.sizes.py_batch}, 2 ranks",
            "ms", r["manta_ms"], ">= half of what gloo loses is gained", part >= 0.5, "gloo",
            r["gloo_ms"], pair_ratio(r["gloo_ms"], r["manta_ms"]),
            f"communication removed {median(r['without_ms']):.3g}; gained {100 * part:.0f} %"),
    ]


def memory(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    s: Samples = defaultdict(list)
    for _ in range(b.sizes.py_reps):
        gather(s, p.samples("memory"))
    ratio = pair_ratio(s["worker_mb"], s["fresh_mb"])
    return [Row("py-memory", "PSS of an idle torch worker, one of 2", "MB", s["worker_mb"],
                "<= 40 % of a fresh one's", ratio is not None and ratio <= 0.4,
                "import torch, one of 2", s["fresh_mb"], ratio)]


def same(b: Bench) -> list[Row]:
    if not (p := package(b)):
        return []
    drivers = b.sizes.rounds
    ends = [line for _ in range(drivers) for line in p.text("same").splitlines()]
    if len(ends) != 3 * drivers:
        raise CannotMeasure(f"{len(ends)} of {3 * drivers} runs ended")
    same = sum(end == ends[0] for end in ends)
    return [Row("py-same", f"of {len(ends)} runs of a program, each third with a kill, with the "
                "same bits at the end", "runs", [float(same)], f"{len(ends)}", same == len(ends))]

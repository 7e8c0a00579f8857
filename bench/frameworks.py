# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and Horovod, each in the environment of its tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kit import ROOT, Bench, Row, median
from python import Package, in_turns

TITLES = {"tensorflow": "TensorFlow", "horovod": "Horovod"}


def environment(name: str) -> Path | None:
    python = ROOT / "build" / f"pyenv-{name}" / "bin" / "python"
    return python if (python.parent.parent / ".pins").exists() else None


def recover(b: Bench, short: str, name: str) -> list[Row]:
    """From a kill to the later rank's first step from the checkpoint, beside the same two ranks
    started by hand. The workers are fresh processes in both."""
    if not (python := environment(name)):
        b.say(f"{short}-recover is not measured: scripts/pyenv {name} --install")
        return []
    p = Package(b, python)

    def killed() -> list[float]:
        with tempfile.TemporaryDirectory(dir=b.scratch) as d:
            return p.samples("others_recover", name, b.sizes.py_kills, d)["recover_ms"]
    s = in_turns(b.sizes.rounds, {"plain": lambda: p.samples("others_plain", name)["plain_ms"],
                                  "ours": killed})
    ratio = median(s["ours"]) / median(s["plain"])
    return [Row(f"{short}-recover", f"SIGKILL of 1 of 2 {TITLES[name]} workers -> both train again "
                "from the checkpoint", "ms", s["ours"], "<= 1.5 x a plain start", ratio <= 1.5,
                f"a plain start with {TITLES[name]}", s["plain"], ratio)]


def tensorflow(b: Bench) -> list[Row]:
    return recover(b, "tf", "tensorflow")


def horovod(b: Bench) -> list[Row]:
    return recover(b, "hvd", "horovod")

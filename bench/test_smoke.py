#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/test_smoke.py BUILD | --python EXE - bench/run measures everything it promises; how fast is
not asked. With EXE, an interpreter that has torch and the package: what is measured of the package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
# What the table of figures consists of. The soak's rows come from elsewhere.
NAMES = ["start", "start-create", "again", "again-first", "again-fresh", "report", "rows-1",
         "rows-8", "rows-threads", "stall", "stall-first", "stall-rush", "write", "write-slow",
         "write-slow-cpu", "notice", "notice-big", "notice-busy",
         "revive", "revive-big", "many", "many-rss", "many-pss",
         "comm-shared-small", "comm-shared", "comm-shared-gloo", "comm-private-small",
         "comm-private", "comm-private-large", "comm-private-gloo", "comm-4-shared",
         "comm-4-private", "comm-8-shared", "comm-8-private", "comm-broadcast-shared",
         "comm-broadcast-private", "comm-allgather-shared", "comm-allgather-private",
         "comm-reduce_scatter-shared", "comm-reduce_scatter-private", "comm-limit", "comm-wait-2",
         "comm-wait-4", "comm-death", "comm-death-private", "comm-death-busy", "comm-storm",
         "comm-same", "ddp", "ddp-overlap", "data-csv-1", "data-csv-2", "dash-chart", "dash-cold",
         "dash-rss", "sink-rows", "sink-call", "sink-events", "sink-memory", "data-load",
         "data-load-filter", "data-load-again", "data-first", "data-memory", "s3-get", "tune",
         "tune-wait", "tune-reuse", "tune-many", "search-speed", "search-tpe", "search-cmaes",
         "search-gp", "search-asha"]
OF_PACKAGE = ["py-start", "py-start-torch", "py-fit", "py-fit-again",
              "py-fit-stall", "py-fit-directory", "py-step", "py-again", "py-again-fresh",
              "py-again-at-once", "py-new", "py-new-gloo", "py-runs",
              "py-report", "py-rows", "py-stall", "py-stall-first", "py-stall-torch", "py-recover",
              "py-recover-gloo", "py-recover-cold", "py-ddp-mlp", "py-ddp-resnet", "py-memory",
              "py-same", "py-tune", "py-tune-torch", "py-tune-reuse", "py-tune-many",
              "data-torch-csv", "data-torch-filter", "data-ready-cached",
              "data-ready-npy"]
# OpenMPI may be missing, these may not
PAIRED = ["stall", "stall-rush", "write", "ddp", "ddp-overlap", "py-start", "py-step", "py-stall",
          "py-fit-stall", "py-stall-torch", "py-ddp-mlp", "py-ddp-resnet", "py-memory"]
WITHOUT_BAR = ["start-create", "again-first", "again-fresh", "py-again-at-once", "stall-first",
               "dash-cold", "write-slow-cpu", "tune-wait", "tune-reuse", "many-pss",
               "data-load-again",
               "py-stall-first", "py-stall-torch", "py-fit-again",
               "ddp-overlap"]  # this has one where there are spare cores

# Its row needs the environment that the stage `trackers` of make check-all has made.
TRACKERS = BENCH.parent / "build" / "pyenv-trackers"
APART = ("tf-recover", "hvd-recover")  # in environments that make check-all has made

number = 0


def check(ok: bool, name: str, why: str = "") -> bool:
    global number
    number += 1
    print(f"{'ok' if ok else 'not ok'} {number} - {name}")
    if not ok and why:
        print(*(f"# {line}" for line in why.splitlines()), sep="\n")
    return ok


def whole(row: dict[str, Any]) -> bool:
    """Two samples at least (of collectives one per size that the bar is about, of what takes an
    import of torch one), all of them positive; a loss of speed may be anything. No verdict without
    a peer that is not installed."""
    once = ("comm-", "py-", "dash-", "data-memory", "sink-memory", "tune-many", "search-")
    few = 1 if row["name"].startswith(once) else 2
    if row["note"].startswith("no chromium"):
        return True
    sane = row["unit"] == "%" or all(s > 0 for s in row["ours"])
    paired = row["name"] not in PAIRED or (len(row["peer"]) >= few and row["ratio"] > 0)
    missing = row["note"].endswith(("make bench-peers", "scripts/tensorboard"))
    judged = row["name"] in WITHOUT_BAR or (bool(row["bar"]) and
                                            (isinstance(row["ok"], bool) or missing))
    return len(row["ours"]) >= few and sane and paired and judged and "median" in row


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH / "run"), *args], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)


def main() -> int:
    package = sys.argv[1] == "--python"
    chosen = [m for m in bench("--list").stdout.split()
              if m.startswith(("py-", "data-torch", "data-ready")) == package and m not in APART]
    with tempfile.TemporaryDirectory() as d:
        out = Path(d) / "results.json"
        done = bench("--quick", *(sys.argv[1:] if package else ["--build", sys.argv[1]]),
                     "--json", str(out), "--only", ",".join(chosen))
        good = check(done.returncode == 0, "everything is measured", done.stderr)
        rows = {r["name"]: r for r in json.loads(out.read_text())["rows"]} if out.exists() else {}
        left = sorted(p.name for p in Path(d).iterdir() if p != out)
    wanted = OF_PACKAGE if package else [*NAMES, *(["sink-frozen"] if TRACKERS.exists() else [])]
    for name in wanted:
        good &= check(name in rows and whole(rows[name]), name, str(rows.get(name)))
    good &= check(all(r["what"] in done.stdout for r in rows.values()), "the table has every row")
    good &= check(not left, "no run is left behind", " ".join(left))
    print(f"1..{number}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

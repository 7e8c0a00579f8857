# SPDX-License-Identifier: Apache-2.0
"""The rows of a run in files, too: how many, and what the worker notices of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from kit import ROOT, Bench, CannotMeasure, Row, median, pair_ratio, parse

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
    grown = b.samples("sink", "memory", "--rows", b.sizes.flat_rows)["grown_mb"]
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
        Row("sink-memory", f"growth of the driver from {b.sizes.flat_rows // 5} to "
            f"{b.sizes.flat_rows} rows", "MB", grown, "<= 4", max(grown) <= 4),
    ]


# --- MLflow ---------------------------------------------------------------------------------------

TRACKERS = ROOT / "build" / "pyenv-trackers" / "bin" / "python"
PACE_US = 1000
START_S = 120.0
THAW_S = 2.0  # after the last report: the run is over, and its sinks drain


class Server:
    """A real MLflow server, which can be frozen."""

    def __init__(self, folder: str):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [TRACKERS, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/m.db",
             "--artifacts-destination", f"{folder}/files", "--host", "127.0.0.1", "--port",
             str(port), "--workers", "1"],
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        by = time.monotonic() + START_S
        while not self._is_up():
            if self.process.poll() is not None or time.monotonic() > by:
                raise CannotMeasure("the MLflow server does not start")
            time.sleep(0.2)

    def _is_up(self) -> bool:
        try:
            with urllib.request.urlopen(self.uri + "/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def ask(self, call: str, **body: Any) -> Any:
        asked = urllib.request.Request(f"{self.uri}/api/2.0/mlflow/{call}",
                                       json.dumps(body).encode() if body else None,
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return json.loads(reply.read())

    def steps(self, directory: Path) -> set[int]:
        """Those that it has of the run in this directory."""
        found = self.ask("runs/search", experiment_ids=["0"],
                         filter=f"tags.`manta.directory` = '{directory}'")["runs"][0]
        run, at, steps = found["info"]["run_id"], "", set()
        while True:
            page = self.ask(f"metrics/get-history?run_id={run}&metric_key=loss&max_results=5000"
                            + (f"&page_token={at}" if at else ""))
            steps |= {int(m["step"]) for m in page.get("metrics", ())}
            at = page.get("next_page_token")
            if not at:
                return steps

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)


def tracked(b: Bench, server: Server, frozen: bool) -> float:
    """p99 of a report, in ns; the server has all of the run afterwards."""
    rows = b.sizes.tracked_rows
    with tempfile.TemporaryDirectory(dir=b.scratch) as d:
        thaw = threading.Timer(rows * PACE_US / 1e6 + THAW_S, server.signal, [signal.SIGCONT])
        if frozen:
            server.signal(signal.SIGSTOP)
            thaw.start()
        try:
            said = parse(b.text("sink", "call", "--dir", d, "--rows", rows, "--pace-us", PACE_US,
                                "--mlflow", server.uri))
        finally:
            thaw.cancel()
            server.signal(signal.SIGCONT)
        run = next(Path(d).glob("*/run.log")).parent
        if server.steps(run) != set(range(1, rows + 1)):
            b.run(b.build / "src" / "cmd" / "manta", "mlflow", "push", run)
        if (got := len(server.steps(run))) != rows:
            raise CannotMeasure(f"MLflow has {got} of {rows} rows after SIGCONT")
    return said["p99_ns"][0]


def mlflow(b: Bench) -> list[Row]:
    """Whether the worker notices that the server is frozen. No row without a server."""
    if not TRACKERS.exists():
        b.say("no MLflow: scripts/pyenv trackers")
        return []
    calm: list[float] = []
    frozen: list[float] = []
    with tempfile.TemporaryDirectory() as d:
        server = Server(d)
        try:
            for _ in range(b.sizes.reps):
                calm.append(tracked(b, server, False))
                frozen.append(tracked(b, server, True))
        finally:
            server.signal(signal.SIGKILL)
            server.process.wait()
    cost = pair_ratio(frozen, calm)
    return [Row("sink-frozen", "p99 of a report while MLflow is frozen; nothing missing later",
                "ns", frozen, "<= 2 x not frozen", cost is not None and cost <= 2,
                "not frozen", calm, cost)]

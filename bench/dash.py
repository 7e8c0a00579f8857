# SPDX-License-Identifier: Apache-2.0
"""The dashboard with a run of a million rows: how soon its first chart is drawn, and its memory."""

from __future__ import annotations

import http.client
import re
import subprocess
import tempfile
import time
from pathlib import Path

from kit import Bench, CannotMeasure, Row, median, parse

BROWSER = Path(__file__).resolve().parent / "first_chart.py"
LIMIT_S = 60


def serve(b: Bench, runs: Path) -> tuple[subprocess.Popen[str], str]:
    """A dashboard that serves, and its link."""
    p = subprocess.Popen([b.env["MANTA_BIN"], "dashboard", "--port", "0", runs], env=b.env,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    link = p.stdout.readline().strip() if p.stdout else ""
    if not link:
        raise CannotMeasure("manta dashboard does not serve: was it built with libmicrohttpd?")
    return p, link


def first_event(link: str) -> None:
    """Until the run is whole, as the page would ask for it."""
    found = re.fullmatch(r"http://([\d.]+):(\d+)/\?token=(\w+)", link)
    assert found
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        c = http.client.HTTPConnection(found[1], int(found[2]), timeout=LIMIT_S)
        c.request("GET", "/api/events?run=long", headers={"Authorization": f"Bearer {found[3]}"})
        answer = c.getresponse()
        while answer.status == 200 and (line := answer.readline()):
            if b'"whole":true' in line:
                return
        c.close()
    raise CannotMeasure("the run was not read")


def peak_mb(pid: int) -> float:
    said = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", said)[1]) / 1000  # type: ignore[index]


def charts(b: Bench, link: str) -> list[float]:
    """By the browser's own clock; none where there is no browser."""
    try:
        said = b.run("/usr/bin/python3", BROWSER, link, "long", b.sizes.reps)
    except CannotMeasure as e:
        b.say(f"no browser: {str(e).splitlines()[-1]}")
        return []
    return parse(said)["first_chart_ms"]


def dashboard(b: Bench) -> list[Row]:
    drawn: list[float] = []
    cold: list[float] = []
    memory: list[float] = []
    with tempfile.TemporaryDirectory(dir=b.scratch) as d:
        runs = Path(d)
        b.text("pretend", runs, "long", "--rows", b.sizes.dash_rows, "--ranks", 1)
        for _ in range(b.sizes.rounds):
            before = time.monotonic()
            p, link = serve(b, runs)
            first_event(link)
            cold.append((time.monotonic() - before) * 1e3)
            drawn += charts(b, link)
            memory.append(peak_mb(p.pid))
            p.terminate()
            p.wait()
    what = f"{b.sizes.dash_rows:,} rows"
    return [
        Row("dash-chart", f"page asked for -> first chart, {what}", "ms", drawn, "<= 300",
            median(drawn) <= 300 if drawn else None,
            note="" if drawn else "no chromium, or no python3-selenium"),
        Row("dash-cold", f"server started -> all of the run sent, {what}", "ms", cold),
        Row("dash-rss", f"most memory of the server, {what}", "MB", memory, "<= 50",
            max(memory) <= 50),
    ]

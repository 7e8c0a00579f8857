# SPDX-License-Identifier: Apache-2.0
"""A dashboard that is served, and runs that nobody ran to show in it (bench/pretend.c)."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cmd"))
from bed import MANTA, Bed, Skip, main, wait_for  # noqa: E402,F401

PRETEND = os.environ["MANTA_PRETEND"]


def make_bed() -> Bed:
    bed = Bed()
    bed.env["MANTA_MODULES"] = os.environ["MANTA_MODULES"]
    return bed


class Pretence:
    """A run whose log grows by a line to its standard input."""

    def __init__(self, runs: Path, name: str, *options: object) -> None:
        self.process = subprocess.Popen([PRETEND, runs, name, "--live", *map(str, options)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def say(self, *words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write("".join(f"{w}\n" for w in words))
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0


def pretend(runs: Path, name: str, *options: object) -> None:
    subprocess.run([PRETEND, runs, name, *map(str, options)], check=True, timeout=60)


def pretend_trials(runs: Path, name: str, trials: int) -> None:
    program = os.environ["MANTA_PRETEND_TRIALS"]
    subprocess.run([program, runs, name, "--trials", str(trials)], check=True, timeout=60)


class Dashboard:
    def __init__(self, bed: Bed, runs: Path, *options: object) -> None:
        self.process = bed.start("dashboard", "--port", 0, *options, runs)
        assert self.process.stdout
        self.link = self.process.stdout.readline().strip()
        found = re.fullmatch(r"(https?)://(\[?[\w.:-]+?\]?):(\d+)/\?token=([\w.~-]+)", self.link)
        assert found, (self.link, self.process.stderr and self.process.stderr.read())
        self.scheme, self.host, self.port, self.token = found[1], found[2], int(found[3]), found[4]

    def ask(self, path: str, method: str = "GET", token: str | None = None,
            **headers: str) -> http.client.HTTPResponse:
        """With the token as a header, unless another one is given; "": none."""
        token = self.token if token is None else token
        if token:
            headers.setdefault("Authorization", f"Bearer {token}")
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        c.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return c.getresponse()

    def code(self, path: str, method: str = "GET", token: str | None = None,
             **headers: str) -> int:
        return self.ask(path, method, token, **headers).status

    def json(self, path: str) -> Any:
        return json.loads(self.ask(path).read())

    def runs(self) -> dict[str, Any]:
        return {r["name"]: r for r in self.json("/api/runs")["runs"]}

    def whole(self, count: int) -> dict[str, Any]:
        """The runs, when so many of them are read to their ends and weighed."""
        def done() -> Any:
            runs = self.runs()
            return len(runs) == count and all(
                r["whole"] and r["bytes"] for r in runs.values()) and runs
        return wait_for(f"{count} runs", done)

    def events(self, path: str) -> Iterator[Any]:
        answer = self.ask(path)
        assert answer.status == 200, answer.read()
        assert answer.getheader("Content-Type") == "text/event-stream"
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def stop(self) -> None:
        self.process.terminate()
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, (self.process.returncode, err)
        assert "Sanitizer" not in err and "runtime error" not in err, err

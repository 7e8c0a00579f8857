# SPDX-License-Identifier: Apache-2.0
"""Where the tests of the command run it: directories of their own, and a look at what is left.

    bed = Bed()
    bed.manta("status").code

MANTA_BIN and MANTA_COUNTER, the command and the program it runs, come from the build.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from tap import ROOT, Skip, main  # noqa: E402,F401

MANTA = os.environ["MANTA_BIN"]
COUNTER = os.environ["MANTA_COUNTER"]
LIMIT_S = 60 * float(os.environ.get("MANTA_TEST_SLOWER", "1"))  # of any one step
MARK = "MANTA_TEST_BED"


@dataclass
class Done:
    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        """Agents and writers say to our standard error what a sanitizer finds in them."""
        assert "Sanitizer" not in self.err and "runtime error" not in self.err, self.err

    def json(self) -> Any:
        return json.loads(self.out)


def wait_for(what: str, truth: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """The first true answer."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if answer := truth():
            return answer
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {limit_s} s")


class Bed:
    """A place for runs. Nothing may be left of them when the script ends."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="manta-cmd-"))
        self.results, runtime = self.root / "results", self.root / "runtime"
        runtime.mkdir(mode=0o700)
        self.sockets = runtime / "manta"
        drop = ("MANTA_", "NO_COLOR", "XDG_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.env |= {"MANTA_RESULTS": str(self.results), "XDG_RUNTIME_DIR": str(runtime),
                     MARK: str(self.root)}
        self.started: list[subprocess.Popen[str]] = []
        atexit.register(self.clean)

    def manta(self, *words: object, cwd: Path | None = None, **env: str) -> Done:
        return self.run(MANTA, *words, cwd=cwd, **env)

    def run(self, *words: object, cwd: Path | None = None, **env: str) -> Done:
        done = subprocess.run([str(w) for w in words], env=self.env | env, cwd=cwd or self.root,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT_S)
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: object, **env: str) -> subprocess.Popen[str]:
        """The same without waiting."""
        p = subprocess.Popen([str(w) for w in (MANTA, *words)], env=self.env | env, cwd=self.root,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        return p

    def counting(self, *words: object, n: int = 2, **env: str) -> subprocess.Popen[str]:
        """A counter that counts: started, and past its first checkpoint."""
        before = len(self.runs())
        p = self.start("run", "-n", n, COUNTER, *words, **env)
        wait_for("a new run", lambda: len(self.runs()) > before)
        self.wait_counting()
        return p

    def wait_counting(self, run: str = "latest", past: int = 0) -> None:
        def counts() -> bool:
            s = self.status(run)
            return s["state"] == "running" and bool(s["checkpoint"]) and s["iteration"] > past
        wait_for("a checkpoint", counts)

    def runs(self) -> list[Path]:
        return sorted(p.parent for p in self.results.glob("*/run.log"))

    def status(self, run: object = "latest") -> dict[str, Any]:
        done = self.manta("status", "--json", run)
        assert done.code == 0, done
        return done.json()

    def ps(self) -> list[dict[str, Any]]:
        return self.manta("ps", "--json").json()

    def finish(self, p: subprocess.Popen[str]) -> Done:
        out, err = p.communicate(timeout=LIMIT_S)
        return Done(p.returncode, out, err)

    def left(self) -> list[str]:
        """Processes that belong to this bed: by their environment, or a file they have open."""
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            if int(proc.name) == os.getpid() or not self.owns(proc):
                continue
            try:
                found.append(f"{proc.name} {(proc / 'comm').read_text().strip()}")
            except OSError:
                pass  # it went while we looked
        return found

    def owns(self, proc: Path) -> bool:
        try:
            if f"{MARK}={self.root}\0".encode() in (proc / "environ").read_bytes():
                return True
            links = [os.readlink(f) for f in (proc / "fd").iterdir()]
        except OSError:
            return False
        return any(link.startswith(f"{self.root}/") for link in links)

    def gone(self, limit_s: float = 5.0) -> None:
        """Every process of the bed is gone, and so are its sockets."""
        try:
            wait_for("the end of all processes", lambda: not self.left(), limit_s)
        except AssertionError:
            raise AssertionError(f"left: {self.left()}") from None
        assert not list(self.sockets.glob("agent-*.sock"))

    def clean(self) -> None:
        for p in self.started:
            if p.poll() is None:
                p.kill()
        shutil.rmtree(self.root, ignore_errors=True)


def driver_of(bed: Bed) -> int:
    """The process that trains, as ps says."""
    return int(bed.ps()[0]["driver"])

# SPDX-License-Identifier: Apache-2.0
"""Runs a program of a user's, with results in a directory of its own; nothing may be left."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 120
GONE_S = 2.0  # every process of a run is gone so soon after its driver


@dataclass
class Ended:
    code: int
    out: str
    err: str
    results: Path  # where its run directories are

    def run_dir(self) -> Path:
        """The one run that it made."""
        runs = sorted(self.results.iterdir())
        assert len(runs) == 1, runs
        return runs[0]


_scratch = tempfile.TemporaryDirectory(prefix="manta-guest-")
_count = 0


def scratch(name: str) -> Path:
    """A new directory that is removed at the end."""
    global _count
    _count += 1
    path = Path(_scratch.name) / f"{_count}-{name}"
    path.mkdir()
    return path


def environment(build: Path, results: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MANTA_")}
    return {**kept, "MANTA_RESULTS": str(results), "MANTA_BIN": str(build / "src/cmd/manta"),
            "LD_LIBRARY_PATH": str(build / "src"), **more}


def run(build: Path, program: Path, *args: str, **env: str) -> Ended:
    """Runs it to its end, and checks that no process of its run lives on."""
    results = scratch(program.name)
    done = subprocess.run([str(program), *args], capture_output=True, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, env=environment(build, results, **env))
    by = time.monotonic() + GONE_S
    while (left := holders(results)) and time.monotonic() < by:
        time.sleep(0.02)
    assert not left, f"processes left: {left}\n{done.stderr}"
    return Ended(done.returncode, done.stdout, done.stderr, results)


def holders(results: Path) -> list[str]:
    """Processes that know this directory: by their environment, or by a file they have open."""
    found = []
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit() and int(proc.name) != os.getpid() and knows(proc, str(results)):
            found.append(f"{proc.name} {command_of(proc)}")
    return found


def knows(proc: Path, path: str) -> bool:
    try:
        if path.encode() in (proc / "environ").read_bytes():
            return True
        return any(os.readlink(fd).startswith(path) for fd in (proc / "fd").iterdir())
    except OSError:  # it is gone, or not ours
        return False


def command_of(proc: Path) -> str:
    try:
        return (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "?"

# SPDX-License-Identifier: Apache-2.0
"""How the tests run the programs of this directory."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent

# Programs that need a part of manta which is not there yet. To enable one is to remove its line.
WAITS: dict[str, str] = {}


def program(name: str) -> dict[str, Any]:
    """Runs it as a script is run; its variables. What workers are forked from is shared."""
    _skip_if_waiting(name)
    left = runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
    if hasattr(left.get("trainer"), "shutdown"):
        left["trainer"].shutdown()
    return left


def program_apart(name: str, then: str) -> str:
    """The same in an interpreter of its own, because it declares resources; its output."""
    _skip_if_waiting(name)
    code = f"import runpy, sys; exec({then!r}, runpy.run_path(sys.argv[1], run_name='__main__'))"
    return _output("-c", code, HERE / f"{name}.py")


def program_as_ray(name: str, directory: Path, *words: str) -> str:
    """The same with ray in its import lines, by manta.compat.ray; its output."""
    _skip_if_waiting(name)
    script = directory / f"{name}.py"
    text = (HERE / f"{name}.py").read_text()
    script.write_text(text.replace("import manta as ray", "import ray").replace("manta", "ray"))
    return _output("-m", "manta.compat.ray", script, *words)


def _output(*words: str | Path) -> str:
    done = subprocess.run([sys.executable, *words], text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _skip_if_waiting(name: str) -> None:
    if name in WAITS:
        pytest.skip(WAITS[name])

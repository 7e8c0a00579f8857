# SPDX-License-Identifier: Apache-2.0
"""The program of document 001 with Horovod."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import Section, run_section, sections

pytest.importorskip("horovod", reason="horovod is not installed")

TESTS = Path(__file__).resolve().parent.parent


def program(name: str, then: str) -> str:
    """It declares resources: in an interpreter of its own. Its output."""
    code = f"import runpy, sys; exec({then!r}, runpy.run_path(sys.argv[1], run_name='__main__'))"
    done = subprocess.run([sys.executable, "-c", code, TESTS / "documents" / f"{name}.py"],
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deadline(120)
def test_001_horovod() -> None:
    out = program("d001_horovod", "print(everywhere, once, result)")
    assert out.splitlines()[-1] == f"{[10.0] * 4} 10.0 {[4.0] * 4}"


# --- docs/ ----------------------------------------------------------------------------------------


@pytest.mark.deadline(180)
@pytest.mark.parametrize("section", [s for s in sections() if "horovod" in s.needs],
                         ids=lambda s: s.name)
def test_blocks_do_what_is_said(section: Section, tmp_path: Path,
                                capfd: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_section(section, tmp_path, capfd)

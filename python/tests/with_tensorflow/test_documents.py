# SPDX-License-Identifier: Apache-2.0
"""The program of document 002 on TensorFlow, and the blocks of docs/port.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import Section, run_section, sections

pytest.importorskip("tensorflow", reason="tensorflow is not installed")

TESTS = Path(__file__).resolve().parent.parent


def program(name: str, then: str) -> str:
    """It imports TensorFlow itself: in an interpreter of its own. Its output."""
    code = f"import runpy, sys; exec({then!r}, runpy.run_path(sys.argv[1], run_name='__main__'))"
    done = subprocess.run([sys.executable, "-c", code, TESTS / "documents" / f"{name}.py"],
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=220)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deadline(240)
def test_002_tensorflow() -> None:
    then = "print(type(model).__module__.partition('.')[0], " \
           "[float(w.ravel()[0]) for w in model.get_weights()])"
    out = program("d002_tensorflow", then)
    kind, _, numbers = out.strip().splitlines()[-1].partition(" ")
    slope, offset = eval(numbers)
    assert kind == "tf_keras" and 2 < slope < 3.2 and 0.8 < offset < 1.2


# --- docs/ ----------------------------------------------------------------------------------------


@pytest.mark.deadline(180)
@pytest.mark.parametrize("section", [s for s in sections() if "tensorflow" in s.needs],
                         ids=lambda s: s.name)
def test_blocks_do_what_is_said(section: Section, tmp_path: Path,
                                capfd: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")  # the script sets it, and it is not to stay
    run_section(section, tmp_path, capfd)

# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/engines.md, each in an interpreter of its own, as users run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import MARK, Section, compare, sections

PROGRAMS = [s for s in sections() if "engines" in s.needs]


def test_there_are_such_sections() -> None:
    assert [s.name.partition(": ")[2] for s in PROGRAMS] == [
        "Ray Data", "Dask", "Spark", "Tables of one host"]


@pytest.mark.deadline(600)
@pytest.mark.parametrize("section", PROGRAMS, ids=lambda s: s.name)
def test_programs_do_what_is_said(section: Section, tmp_path: Path) -> None:
    if "pyspark" in section.code and not shutil.which("java"):
        pytest.skip("no Java: scripts/install-deps engines installs it")
    (tmp_path / "program.py").write_text(section.code)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=580,
                          env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout.split(f"{MARK}\n")
    assert out[-1] == "" and len(out) == len(section.says) + 1
    for got, said in zip(out, section.says):
        compare(got, said)

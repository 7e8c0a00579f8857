# SPDX-License-Identifier: Apache-2.0
"""Every figure of the package can be measured; how good it is, is not asked here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SMOKE = Path(__file__).resolve().parents[2] / "bench" / "test_smoke.py"


@pytest.mark.deadline(290)
def test_every_figure_comes() -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, SMOKE, "--python", sys.executable], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=280)
    bad = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert done.returncode == 0, "\n".join(bad)

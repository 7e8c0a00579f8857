# SPDX-License-Identifier: Apache-2.0
"""Sections of docs/ whose blocks need packages that only this environment has, or that take long to
import."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_docs import Section, run_section, sections

# Those with frameworks that have an environment of their own are run there.
APART = {path.name.removeprefix("with_") for path in Path(__file__).parent.parent.glob("with_*")}
NEEDY = [section for section in sections() if section.needs - APART]


def test_there_are_such_sections() -> None:
    assert len(NEEDY) >= 4


@pytest.mark.deadline(180)
@pytest.mark.parametrize("section", NEEDY, ids=lambda s: s.name)
def test_blocks_do_what_is_said(section: Section, tmp_path: Path,
                                capfd: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    for package in sorted(section.needs):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    run_section(section, tmp_path, capfd)

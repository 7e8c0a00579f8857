# SPDX-License-Identifier: Apache-2.0
"""What docs/python.md and the Python of README.md say is true.

The ```python blocks of a section run one after the other as one script; a ```text block right
behind one is what it prints (… stands for anything). A block marked "illustration" is not run.
"""

from __future__ import annotations

import os
import re
import runpy
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import manta
from manta import _command, sgd
from manta.sgd import Trainer

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "python.md"
PAGES = [GUIDE, ROOT / "README.md"]
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
NEEDS_TORCH = re.compile(r'^import torch|backend="torch"|^trainer = Trainer\(\)', re.M)


@dataclass
class Section:
    name: str
    code: str = ""
    says: list[str | None] = field(default_factory=list)  # by block; None: nothing was said


def sections() -> list[Section]:
    found = []
    for page in PAGES:
        for part in re.split(r"^## ", page.read_text(), flags=re.M)[1:]:
            section = Section(f"{page.stem}: {part.splitlines()[0]}")
            for mark, code, says in BLOCK.findall(part):
                if "illustration" not in mark:
                    section.code += f"{code}\nprint({MARK!r}, flush=True)\n"
                    section.says.append(says or None)
            if section.says:
                found.append(section)
    return found


MARK = "--- end of a block ---"


def test_there_are_blocks() -> None:
    assert len(sections()) >= 8
    assert sum(len(BLOCK.findall(page.read_text())) for page in PAGES) >= 12


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What leads to another host, node7, leads to this one."""
    command = os.environ.get("MANTA_BIN") or _command.path()
    script = tmp_path / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(f"""#!/bin/sh
[ "$*" = "-o BatchMode=yes node7 manta agent --stdio" ] && exec {command} agent --stdio
echo "ssh $*: no such host" >&2; exit 255
""")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("ssh")
@pytest.mark.parametrize("section", sections(), ids=lambda s: s.name)
def test_blocks_do_what_is_said(section: Section, tmp_path: Path,
                                capfd: pytest.CaptureFixture[str]) -> None:
    if NEEDS_TORCH.search(section.code):
        pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "section.py"
    script.write_text(section.code)
    runpy.run_path(str(script), run_name="__main__")
    out = capfd.readouterr().out.split(f"{MARK}\n")
    assert out[-1] == "" and len(out) == len(section.says) + 1
    for got, said in zip(out, section.says):
        pattern = ".*".join(map(re.escape, (said or "").split("…")))
        assert said is None or re.fullmatch(pattern, got, re.S), f"{got}\nis not\n{said}"


# --- names ----------------------------------------------------------------------------------------


def test_links_lead_somewhere() -> None:
    text = GUIDE.read_text()
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", text):
        page = (GUIDE.parent / target).resolve() if target else GUIDE
        assert page.exists(), target
        if anchor:
            headings = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                        for h in re.findall(r"^#+ (.*)", page.read_text(), re.M)}
            assert anchor in headings, anchor


def test_names_exist() -> None:
    """What stands in backticks as sgd.x, manta.X or trainer.x is there."""
    text = GUIDE.read_text()
    for name in re.findall(r"`sgd\.(\w+)", text):
        assert hasattr(sgd, name), f"sgd.{name}"
    for name in re.findall(r"`manta\.([A-Z]\w+)`", text):
        assert hasattr(manta, name), f"manta.{name}"
    for name in re.findall(r"\b[Tt]rainer\.(\w+)\b", text):
        assert hasattr(Trainer, name), f"Trainer.{name}"

# SPDX-License-Identifier: Apache-2.0
"""What the pages in docs/ and the Python of README.md say is true.

The ```python blocks of a section run one after the other as one script, then its ```sh blocks, each
in the same directory; a ```text block right behind one is what it prints (… stands for anything). A
block marked "file=NAME" is written to that directory, one marked "illustration" is not run. A
section with a block marked "needs=PACKAGE" is run by ecosystem/test_pages.py, or by the tests of
with_PACKAGE if there are any.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import manta
from manta import _command, sgd
from manta.sgd import Trainer

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / page for page in (
    "docs/python.md",
    "docs/data.md",
    "docs/engines.md",
    "docs/tune.md",
    "docs/port.md",
    "docs/train.md",
    "docs/large-models.md",
    "docs/metrics.md",
    "docs/watch.md",
    "docs/from-torchrun.md",
    "docs/from-accelerate-lightning.md",
    "docs/operators.md",
    "README.md",
)]
BLOCK = re.compile(r"^```(python|sh)\b([^\n]*)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
                   re.M | re.S)
NEEDS_TORCH = re.compile(r'^import torch|backend="torch"|^trainer = Trainer\(\)', re.M)


@dataclass
class Section:
    name: str
    code: str = ""
    says: list[str | None] = field(default_factory=list)  # by block; None: nothing was said
    files: dict[str, str] = field(default_factory=dict)
    shell: list[tuple[str, str | None]] = field(default_factory=list)  # and what it prints
    needs: set[str] = field(default_factory=set)

    def add(self, kind: str, mark: str, code: str, says: str | None) -> None:
        self.needs.update(*(found.split(",") for found in re.findall(r"needs=([\w,]+)", mark)))
        if name := re.search(r"file=(\S+)", mark):
            self.files[name[1]] = code
        elif kind == "sh":
            self.shell.append((code, says))
        else:
            self.code += f"{code}\nprint({MARK!r}, flush=True)\n"
            self.says.append(says)


def sections() -> list[Section]:
    found = []
    for page in PAGES:
        for part in re.split(r"^## ", page.read_text(), flags=re.M)[1:]:
            section = Section(f"{page.stem}: {part.splitlines()[0]}")
            for kind, mark, code, says in BLOCK.findall(part):
                if "illustration" not in mark:
                    section.add(kind, mark, code, says or None)
            if section.says or section.shell:
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
@pytest.mark.parametrize("section", [s for s in sections() if not s.needs], ids=lambda s: s.name)
def test_blocks_do_what_is_said(section: Section, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch,
                                capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)  # what they write goes there
    if NEEDS_TORCH.search(section.code + "".join(section.files.values())):
        pytest.importorskip("torch", reason="torch is not installed")
    run_section(section, tmp_path, capfd)


def run_section(section: Section, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, code in section.files.items():
        (tmp_path / name).write_text(code)
    if section.says:
        run_python(section, tmp_path / "section.py", capfd)
    for code, said in section.shell:
        run_shell(code, said, tmp_path)


def run_python(section: Section, script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script.write_text(section.code)
    runpy.run_path(str(script), run_name="__main__")
    out = capfd.readouterr().out.split(f"{MARK}\n")
    assert out[-1] == "" and len(out) == len(section.says) + 1
    for got, said in zip(out, section.says):
        compare(got, said)


def run_shell(code: str, said: str | None, where: Path) -> None:
    """`python` and `manta` are those of this environment."""
    places = (Path(sys.executable).parent, Path(_command.path()).parent)
    path = ":".join([*map(str, places), os.environ["PATH"]])
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", code], cwd=where, text=True,
                          capture_output=True, env={**os.environ, "PATH": path}, timeout=50)
    assert done.returncode == 0, f"{code}\nexit code {done.returncode}\n{done.stderr}"
    compare(done.stdout, said)


def compare(got: str, said: str | None) -> None:
    pattern = ".*".join(map(re.escape, (said or "").split("…")))
    assert said is None or re.fullmatch(pattern, got, re.S), f"{got}\nis not\n{said}"


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text()):
        other = (page.parent / target).resolve() if target else page
        assert other.exists(), target
        if anchor:
            headings = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                        for h in re.findall(r"^#+ (.*)", other.read_text(), re.M)}
            assert anchor in headings, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_names_exist(page: Path) -> None:
    """What stands in backticks as sgd.x, manta.X or trainer.x is there."""
    text = page.read_text()
    for name in re.findall(r"`sgd\.(\w+)", text):
        assert hasattr(sgd, name), f"sgd.{name}"
    for name in re.findall(r"`manta\.([A-Z]\w+)`", text):
        assert hasattr(manta, name), f"manta.{name}"
    for name in re.findall(r"`[Tt]rainer\.(\w+)\b", text):
        assert hasattr(Trainer, name), f"Trainer.{name}"

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_docs.py BUILD - what README.md and docs/ say is true.

Every ```c block is compiled with all warnings and run. One without a main is a train function named
`train`, which is run on two workers. A ```text block right behind it is what it prints (… stands
for anything), and "exit code N" in its last line what it exits with.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import guest
from tap import ROOT, Skip, main

build = Path(sys.argv[1]).resolve()
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]
TEXTS = ["DESIGN.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]  # without programs
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-pedantic"]

HEAD = """
#include <stdio.h>
#include <string.h>
#include <manta/manta.h>
"""
MAIN = r"""
int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t = NULL;
  cfg.workers = 2;
  manta_status st = manta_trainer_create(&t, &cfg, &err);
  if (st == MANTA_OK)
    st = manta_trainer_run(t, train, NULL, NULL, &err);
  if (st < 0)
    fprintf(stderr, "%s\n", err.message);
  manta_trainer_destroy(t);
  return st < 0;
}
"""
BLOCK = re.compile(r"^```c\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


@dataclass
class Block:
    name: str
    code: str
    says: str | None  # None: nothing was said about it


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{Path(page).stem}_line_{line}", found[1], found[2])


def compiled(b: Block) -> Path:
    where = guest.scratch(b.name)
    whole = b.code if "int main(" in b.code else HEAD + b.code + MAIN
    (where / "main.c").write_text(whole)
    done = subprocess.run(["gcc", "-std=gnu11", *WARNINGS, f"-I{ROOT / 'include'}", "main.c",
                           f"-L{build / 'src'}", "-lmanta", "-o", b.name], cwd=where,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return where / b.name


def check(b: Block) -> None:
    done = guest.run(build, compiled(b))
    said, code = b.says or "", 0
    if found := re.search(r"^exit code (\d+)\n\Z", said, re.M):
        said, code = said[:found.start()], int(found[1])
    assert done.code == code, f"exit code {done.code}\n{done.out}{done.err}"
    if "raise(SIGKILL)" in b.code:
        assert "killed by signal 9" in done.err, done.err
    pattern = ".*".join(map(re.escape, said.split("…")))
    assert b.says is None or re.fullmatch(pattern, done.out), f"{done.out}\nis not\n{said}"


def make_test(b: Block) -> Callable[[], None]:
    return lambda: check(b)


for _page in PAGES:
    for _block in blocks(_page):
        globals()[f"test_{_block.name}"] = make_test(_block)


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, *TEXTS]:
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
        headings = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
                    for h in re.findall(r"^#+ (.*)", text, re.M)}
        for anchor in re.findall(r"\]\(#([^)]+)\)", text):
            assert anchor in headings, f"{page}: #{anchor}"


def test_files_that_are_named_exist() -> None:
    """Paths in backticks that begin in a folder of the project. NAME stands for one of many."""
    for page in [*PAGES, *TEXTS]:
        for path in re.findall(r"`((?:src|tests|tools|scripts|include|docs|examples)/[\w./-]*)`",
                               (ROOT / page).read_text()):
            assert "NAME" in path or (ROOT / path).exists(), f"{page}: {path}"


def test_variables_are_those_of_the_code() -> None:
    """Each row of the table is in the guide, each of the guide is a row, and what the code sets or
    names otherwise is one as well."""
    table = (ROOT / "src/base/knob.c").read_text()
    rows = set(re.findall(r'\{"(MANTA_\w+)"', table))
    source = "".join(p.read_text() for p in (ROOT / "src").rglob("*.[ch]"))
    used = set(re.findall(r'(?:un)?setenv\("(MANTA_\w+)"', source))
    used |= set(re.findall(r'define MANTA__(?:ROLE|MARK)_ENV +"(\w+)"', source))
    assert len(rows) > 20 and used <= rows, used - rows
    guide = (ROOT / "docs/guide.md").read_text()
    told = set(re.findall(r"MANTA_\w+", guide[guide.index("## Environment"):]))
    assert rows == told, rows ^ told


def test_fields_that_are_named_exist() -> None:
    headers = [ROOT / "include/manta" / name for name in ("trainer.h", "data.h")]
    header = "".join(h.read_text() for h in headers)
    guide = (ROOT / "docs/guide.md").read_text()
    for field in re.findall(r"`([a-z]+_[a-z_]+)`", guide):
        if not field.startswith(("manta_", "_")):
            assert re.search(rf"\b{field}\b", header), field


def test_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.M))
    for page in [*PAGES, *TEXTS]:
        named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", (ROOT / page).read_text(), re.M))
        assert named <= targets, f"{page}: {named - targets}"


def test_subcommands_that_are_named_exist() -> None:
    manta = build / "src" / "cmd" / "manta"
    if subprocess.run([manta, "--help"], capture_output=True).returncode != 0:
        raise Skip("this build of manta has no sub-commands")
    guide = (ROOT / "docs/guide.md").read_text()
    named = set(re.findall(r"`manta ([a-z]+)", guide + (ROOT / "README.md").read_text()))
    assert "status" in named
    for name in sorted(named):
        done = subprocess.run([manta, name, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, f"manta {name} --help: {done.stderr}"


main(globals(), sys.argv[2:])

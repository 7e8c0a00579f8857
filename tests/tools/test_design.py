#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What DESIGN.md and CONTRIBUTING.md name is there: files, and the functions of the walks."""

from __future__ import annotations

import re
from typing import Iterator

from tap import ROOT, main

PAGES = [p for p in ("DESIGN.md", "CONTRIBUTING.md", "SECURITY.md") if (ROOT / p).exists()]
TOP = "src|python|include|tests|tools|scripts|docs|bench|examples"
PATH = re.compile(rf"(?:{TOP})/[\w./*-]*\w[\w*]?")
NAME = re.compile(r"manta__?[a-z]\w*")
STEP = re.compile(r"^\| `([\w/.]+)` \| (.*?) \|", re.M)


def quoted(page: str) -> list[str]:
    """What stands in `quotes`, but not in a block of code; a name with NAME or … is a pattern."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
    return [q for q in re.findall(r"`([^`\n]+)`", text) if "NAME" not in q and q[-1] not in "_…"]


def source_of(*folders: str) -> str:
    return "\n".join(p.read_text(errors="replace") for f in folders
                     for p in sorted((ROOT / f).rglob("*.[ch]")))


def steps() -> Iterator[tuple[str, str]]:
    """(file, function) of each step of a walk."""
    for path, functions in STEP.findall((ROOT / "DESIGN.md").read_text()):
        if path.endswith(".c"):
            for name in re.findall(r"`(\w+)`", functions):
                yield path, name


def test_files_that_are_named_exist() -> None:
    named = {q for page in PAGES for q in quoted(page) if PATH.fullmatch(q)}
    assert len(named) > 40, named
    missing = [q for q in sorted(named) if not list(ROOT.glob(q.rstrip("/")))]
    assert not missing, missing


def test_names_that_are_used_exist() -> None:
    source = source_of("src", "include")
    known = set(NAME.findall(source))
    named = {q for page in PAGES for q in quoted(page) if NAME.fullmatch(q)}
    assert len(named) > 10, named
    assert not sorted(named - known), sorted(named - known)


def test_every_step_of_a_walk_is_where_it_is_said() -> None:
    walked = list(steps())
    assert len(walked) > 40, walked
    for path, name in walked:
        defined = re.compile(rf"^(?!\s|//|/?\*)[^;=]*\b{name}\(", re.M)
        assert defined.search((ROOT / path).read_text()), f"{name} is not in {path}"


main(globals())

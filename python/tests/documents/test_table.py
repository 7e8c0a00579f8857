# SPDX-License-Identifier: Apache-2.0
"""The table of README.md: every code block of the documents has a row, every program is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

from programs import HERE, WAITS

# The documents are not in the repository. These are the lines of all code blocks in them, and of
# the files that they include, from the directive or the fence to the end.
BLOCKS = {
    "000": [(21, 39), (43, 46), (50, 54), (58, 61), (65, 100), (104, 106), (136, 155), (169, 183)],
    "001": [(33, 58), (66, 71), (88, 105), (109, 116), (121, 148), (159, 181), (199, 225),
            (229, 247), (252, 269), (277, 281), (293, 308), (317, 330), (338, 345), (350, 354),
            (360, 386)],
    "002": [(22, 48), (83, 97), (102, 147), (154, 177), (204, 215), (219, 235), (244, 254),
            (259, 283), (298, 309), (314, 329), (343, 366), (372, 391)],
    "003": [(20, 23), (31, 33), (49, 51), (67, 69)],
    "004": [(11, 14), (19, 22), (26, 30), (40, 43), (48, 52), (80, 103), (110, 133), (139, 141),
            (151, 160), (165, 174), (183, 185), (217, 264), (281, 349), (371, 373), (395, 420),
            (437, 445)],
}
ROW = re.compile(r"^\| (\d{3}) \| ([\d–, ]+) \| (.+?) \| (.+?) \|(.*)\|$", re.M)


def rows() -> Iterator[tuple[str, set[int], str, str]]:
    """(document, lines, programs, note)"""
    for document, lines, _, programs, note in ROW.findall((HERE / "README.md").read_text()):
        covered: set[int] = set()
        for part in lines.split(", "):
            first, _, last = part.partition("–")
            covered.update(range(int(first), int(last or first) + 1))
        yield document, covered, programs, note.strip()


def test_every_block_has_a_row() -> None:
    for document, blocks in BLOCKS.items():
        covered = set().union(*(lines for found, lines, _, _ in rows() if found == document))
        for first, last in blocks:
            assert covered.issuperset(range(first, last + 1)), f"{document}, {first}-{last}"


def test_every_row_is_of_a_block() -> None:
    for document, lines, _, _ in rows():
        blocks = [set(range(first, last + 1)) for first, last in BLOCKS[document]]
        assert any(lines >= block for block in blocks), (document, lines)


def test_a_row_without_a_program_says_why() -> None:
    assert all("`d" in programs or note for _, _, programs, note in rows())


def test_every_program_is_in_the_table_once() -> None:
    table = re.findall(r"`(d\d+_\w+)\.py`", (HERE / "README.md").read_text())
    assert sorted(table) == sorted(p.stem for p in HERE.glob("d0*.py"))


def test_every_program_is_run() -> None:
    """Here, or with a framework that has an environment of its own (python/tests/with_…)."""
    apart = HERE.parent.glob("with_*/test_*.py")
    tests = "".join(p.read_text() for p in (*HERE.glob("test_*.py"), *apart)
                    if p != Path(__file__))
    for path in HERE.glob("d0*.py"):
        assert re.search(rf'"{path.stem}(\.py)?"', tests), path.stem


def test_programs_that_wait_are_there() -> None:
    said = {programs.strip("`").removesuffix(".py"): note for _, _, programs, note in rows()}
    for name, reason in WAITS.items():
        assert reason in said[name], name

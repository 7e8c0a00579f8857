#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_filter.py BUILD - the arguments of a test program choose its tests, in C and in Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, main

build = Path(sys.argv[1]).resolve()
PROGRAM = build / "tests" / "test_base_buf"
SCRIPT = """
from tap import main
def test_one_adds(): pass
def test_two_adds(): pass
def test_two_fails(): assert False
main(globals())
"""


def run(*command: str | Path) -> tuple[int, str, str]:
    env = {**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP", "PYTHONPATH": str(ROOT / "tests/tools")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=30, env=env)
    return done.returncode, done.stdout, done.stderr


def ran(*command: str | Path) -> list[str]:
    """The names of the tests that ran, all of which passed."""
    code, out, err = run(*command)
    names = re.findall(r"^ok \d+ - (.*)", out, re.M)
    assert code == 0 and f"1..{len(names)}\n" in out, out + err
    return names


def listed(*command: str | Path) -> list[str]:
    code, out, err = run(*command)
    assert code == 0, err
    return [line for line in out.splitlines() if not line.startswith("#")]


def test_a_list_is_what_runs() -> None:
    names = listed(PROGRAM, "-l")
    assert len(names) > 2
    assert ran(PROGRAM) == names


def test_a_part_of_a_name_chooses() -> None:
    first, second, *_ = listed(PROGRAM, "-l")
    assert ran(PROGRAM, first[1:]) == [first]
    assert ran(PROGRAM, second, first) == [first, second]
    assert listed(PROGRAM, "-l", second) == [second]


def test_a_glob_is_of_the_whole_name() -> None:
    first = listed(PROGRAM, "-l")[0]
    assert ran(PROGRAM, f"{first[:4]}*") and ran(PROGRAM, f"?{first[1:]}") == [first]
    assert run(PROGRAM, f"{first[1:4]}?")[0] != 0


def test_a_filter_that_fits_nothing_fails() -> None:
    for command in ([PROGRAM, "no such test"], [PROGRAM, "-l", "no such test"]):
        code, out, err = run(*command)
        assert code != 0 and out == "" and "-l lists" in err, (code, out, err)


def test_every_program_lists_its_tests() -> None:
    programs = [p for p in (build / "tests").glob("test_*") if p.suffix == "" and p.is_file()]
    assert len(programs) > 50
    for program in programs:
        names = listed(program, "-l")
        assert names and all(re.fullmatch(r"\w+", name) for name in names), (program, names)


def test_scripts_do_the_same() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "script.py"
        script.write_text(SCRIPT)
        python = [sys.executable, script]
        assert listed(*python, "-l") == ["one_adds", "two_adds", "two_fails"]
        assert listed(*python, "-l", "two") == ["two_adds", "two_fails"]
        assert ran(*python, "*_adds") == ["one_adds", "two_adds"]
        assert ran(*python, "two_adds", "one") == ["one_adds", "two_adds"]
        assert run(*python)[0] == 1
        code, out, err = run(*python, "no such test")
        assert code == 1 and out == "" and "-l lists the 3 names" in err, (code, out, err)


main(globals(), sys.argv[2:])

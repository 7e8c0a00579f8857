# SPDX-License-Identifier: Apache-2.0
"""What conftest.py promises: deadlines end tests, and nothing is left behind unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

SLEEPY = """
import time, pytest

@pytest.mark.deadline(0.2)
def test_late():
    time.sleep(1000)

@pytest.mark.deadline(0.2)
def test_late_in_setup(slow):
    pass

@pytest.fixture
def slow():
    time.sleep(1000)

def test_after():
    pass

def test_skipped():
    pytest.skip("why not")

@pytest.mark.gpu
def test_gpu():
    pass
"""

LEAVES = """
import subprocess
kept = []  # it is not reaped

def test_leaves_a_daemon():
    subprocess.run("sleep 1000 & sleep 1000 &", shell=True)

def test_leaves_a_zombie():
    kept.append(subprocess.Popen(["true"]))
"""


def cases_of(folder: Path, tests: str) -> dict[str, tuple[str, str]]:
    """Name of each case: verdict, note."""
    impatient = CONFTEST.read_text().replace("GONE_S = 10.0", "GONE_S = 0.2")
    (folder / "conftest.py").write_text(impatient)
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "--cases=cases", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1, done.stdout + done.stderr
    rows = [json.loads(line) for line in (folder / "cases").read_text().splitlines()]
    return {r["name"].rpartition(":")[2]: (r["verdict"], r["note"]) for r in rows}


def test_a_deadline_ends_one_test_and_no_other(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, SLEEPY)
    for name in ("test_late", "test_late_in_setup"):
        verdict, note = cases[name]
        assert verdict == "failed" and "still running after 0.2 s" in note, cases
    assert cases["test_after"] == ("passed", "")
    assert cases["test_skipped"] == ("skipped", "why not")
    assert cases["no process is left"] == ("passed", "")


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
def test_tests_of_gpus_are_skipped_without_one(tmp_path: Path) -> None:
    assert cases_of(tmp_path, SLEEPY)["test_gpu"] == ("skipped", "no GPU")


def test_what_is_left_behind_is_told_and_ended(tmp_path: Path) -> None:
    verdict, note = cases_of(tmp_path, LEAVES)["no process is left"]
    pids = [int(line.split()[0]) for line in note.splitlines()]
    assert verdict == "failed" and note.count("sleep 1000") == 2 and "a zombie" in note, note
    for pid in pids:
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or ") Z " in state.read_text(), pid


def test_parts_run_every_test_once(tmp_path: Path) -> None:
    """What is skipped as a whole counts once, too."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    for name, tests in {"a": 5, "b": 1, "c": 3}.items():
        text = "".join(f"def test_{name}{i}(): pass\n" for i in range(tests))
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "test_d.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    found = []
    for part in ("1/2", "2/2"):
        command = [sys.executable, "-m", "pytest", "-q", "--cases=cases", f"--part={part}", "."]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=50)
        rows = map(json.loads, (tmp_path / "cases").read_text().splitlines())
        found.append([r["name"] for r in rows if r["name"] != "no process is left"])
    names = [name.rpartition("/")[2] for name in found[0] + found[1]]
    assert len(names) == len(set(names)) == 5 + 1 + 3 + 1
    assert [sum("::" in name for name in part) for part in found] == [5, 4]

# SPDX-License-Identifier: Apache-2.0
"""Ray's own tests of what its users call, as they are, against manta. Those that look into Ray
itself are skipped by the placeholders of harness.py, or are in excluded.txt with the reason.

A release brings few of its tests along. With RAY_GIT, the path of a clone of Ray's repository,
those of its tags are run as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import harness
import pytest
from published import HERE, STAND_INS, STORE, release

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.deadline(1200)

_SGD, _TRAIN = "ray/util/sgd/tests/", "ray/train/tests/"

# (release, file, tests that pass at least)
WITH_RELEASE = [
    ("2.0.1", "ray/air/tests/test_checkpoints.py", 8),
]
OF_REPOSITORY = [
    ("1.9.2", f"{_SGD}test_torch_basic.py", 10),
    ("1.9.2", f"{_TRAIN}test_trainer.py", 28),
    ("2.0.1", f"{_TRAIN}test_data_parallel_trainer.py", 6),
    ("2.0.1", f"{_TRAIN}test_torch_trainer.py", 2),
    ("2.6.3", f"{_TRAIN}test_torch_trainer.py", 4),
    ("2.9.3", f"{_TRAIN}test_data_parallel_trainer.py", 5),
    ("2.9.3", f"{_TRAIN}test_torch_trainer.py", 3),
]


def excluded() -> dict[str, str]:
    """The reason by release, file and name of the test."""
    lines = (HERE / "excluded.txt").read_text().splitlines()
    rows = [s.split(": ", 1) for s in lines if s and not s.startswith("#")]
    return {name.strip(): why.strip() for name, why in rows}


def tag(version: str) -> Path:
    """The folder with the training libraries of a release, out of the repository."""
    if not (git := os.environ.get("RAY_GIT")):
        pytest.skip("RAY_GIT does not name a clone of Ray's repository")
    folder = STORE / f"tag-{version}"
    for part in ("train", "air", "util/sgd") if not folder.exists() else ():
        command = ["git", "-C", git, "archive", f"ray-{version}", f"python/ray/{part}"]
        packed = subprocess.run(command, capture_output=True)
        if packed.returncode == 0:  # not every release has each
            folder.mkdir(exist_ok=True)
            subprocess.run(["tar", "x", "-C", folder], input=packed.stdout, check=True)
    return folder / "python"


def play(folder: Path, file: str, place: Path) -> dict[str, str]:
    """Runs a copy of the file with its neighbours; the verdict by test."""
    for path in filter(Path.is_file, (folder / file).parent.glob("*.py")):
        text = path.read_text()
        copied = path.name in (Path(file).name, "conftest.py") and "import" in text
        (place / path.name).write_text(harness.adapt(text) if copied else text)
    (place / "__init__.py").unlink(missing_ok=True)
    report = place / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "manta.compat.ray", "-m", "pytest", "-p", "harness", "-q", "-p",
         "no:cacheprovider", f"--junitxml={report}", Path(file).name], cwd=place, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1100,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{STAND_INS}", "RAY_RELEASE": str(folder),
             "HOME": str(place)})
    assert report.exists(), done.stdout[-4000:]
    return {case.attrib["name"]: verdict(case) for case in xml.parse(report).iter("testcase")}


def verdict(case: xml.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            return f"{kind}: {found.attrib.get('message', '')}"
    return "passed"


def check(folder: Path, version: str, file: str, least: int, place: Path) -> None:
    verdicts = play(folder, file, place)
    known = excluded()
    wrong = {name: said for name, said in verdicts.items()
             if not said.startswith(("passed", "skipped"))
             and f"{version} {file} {name.partition('[')[0]}" not in known}
    passed = sum(said == "passed" for said in verdicts.values())
    assert not wrong, "\n".join(f"{name}: {said[:300]}" for name, said in wrong.items())
    assert passed >= least, verdicts


@pytest.mark.parametrize("version, file, least", WITH_RELEASE)
def test_of_a_release(version: str, file: str, least: int, tmp_path: Path) -> None:
    check(release(version), version, file, least, tmp_path)


@pytest.mark.parametrize("version, file, least", OF_REPOSITORY)
def test_of_the_repository(version: str, file: str, least: int, tmp_path: Path) -> None:
    check(tag(version), version, file, least, tmp_path)


def test_what_is_excluded_is_played() -> None:
    files = {f"{version} {file}" for version, file, _ in (*WITH_RELEASE, *OF_REPOSITORY)}
    assert all(name.rpartition(" ")[0] in files and why for name, why in excluded().items())

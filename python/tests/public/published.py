# SPDX-License-Identifier: Apache-2.0
"""What was published for Ray: fetched from the package index into build/ray, never kept in the
repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STORE = HERE.parents[2] / "build" / "ray"
STAND_INS = HERE / "stand_ins"
TRIES = ("39", "311")  # Pythons for which a release has a wheel
PARTS = ("ray/tune/examples/", "ray/tune/utils/mock_trainable.py", "ray/train/examples/",
         "ray/air/examples/", "ray/air/tests/", "ray/util/sgd/")


def release(version: str) -> Path:
    """The folder with the programs of a release; a skip if the index does not give it."""
    folder = STORE / version
    stamp = folder / "parts"
    if not stamp.exists() or stamp.read_text() != "\n".join(PARTS):
        wheel = _fetch(version)
        half = STORE / f"{version}.{os.getpid()}"
        with zipfile.ZipFile(wheel) as packed:
            for name in packed.namelist():
                _, found, below = name.rpartition("purelib/")
                if below.startswith(PARTS):
                    place = half / below
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(packed.read(name))
        wheel.unlink()
        (half / "parts").write_text("\n".join(PARTS))
        shutil.rmtree(folder, ignore_errors=True)
        half.rename(folder)
    return folder


def _fetch(version: str) -> Path:
    STORE.mkdir(parents=True, exist_ok=True)
    said = ""
    for python in TRIES:
        done = subprocess.run([sys.executable, "-m", "pip", "download", f"ray=={version}", "-q",
                               "--no-deps", "--only-binary=:all:", "--python-version", python,
                               "--platform", "manylinux2014_x86_64", "-d", STORE], text=True,
                              capture_output=True, timeout=600)
        said = done.stderr.strip().splitlines()[-1:][0] if done.stderr.strip() else ""
        for wheel in STORE.glob(f"ray-{version}-*.whl"):
            return wheel
    pytest.skip(f"the package index does not give ray {version}: {said}")

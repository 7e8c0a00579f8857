# SPDX-License-Identifier: Apache-2.0
"""What pip calls to build the package (pyproject.toml): meson-python, and two things it leaves out.

The wheel is made for the stable ABI of Python 3.11 whoever builds it, and says so: meson-python
would name the Python that built it, and older ones would refuse it.

An editable install is compiled again when it is imported after a change. meson-python would look
for the ninja that it was first built with, which may have lain in pip's own environment and be
gone; scripts/ninja finds one always.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mesonpy
from mesonpy import build_sdist, build_wheel, get_requires_for_build_sdist
from mesonpy import get_requires_for_build_wheel

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_sdist", "get_requires_for_build_wheel"]

PYTHON = "cp311"  # as limited_api in python/meson.build and requires-python
NINJA = Path(__file__).resolve().parent / "ninja"

assert callable(mesonpy._tags.get_interpreter_tag)  # of the version that pyproject.toml pins
mesonpy._tags.get_interpreter_tag = lambda: PYTHON


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    os.environ.setdefault("NINJA", str(NINJA))
    return mesonpy.get_requires_for_build_editable(config_settings)


def build_editable(wheel_directory: str, config_settings: Any = None,
                   metadata_directory: str | None = None) -> str:
    os.environ.setdefault("NINJA", str(NINJA))
    return mesonpy.build_editable(wheel_directory, config_settings, metadata_directory)

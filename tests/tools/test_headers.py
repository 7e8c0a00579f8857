#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles on its own, as C11 and as C++17, with all warnings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Callable

from tap import ROOT, Skip, main

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
LANGUAGES = {"c11": ["gcc", "-std=c11", "-xc"], "cxx17": ["g++", "-std=c++17", "-xc++"]}


def compile_header(header: Path, compiler: list[str]) -> None:
    if not shutil.which(compiler[0]):
        raise Skip(f"{compiler[0]} is not installed")
    # twice: a header that is not guarded fails
    source = f"#include <manta/{header.name}>\n#include <manta/{header.name}>\nint manta_used;\n"
    done = subprocess.run([*compiler, *WARNINGS, "-fsyntax-only", f"-I{ROOT / 'include'}", "-"],
                          input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_test(header: Path, compiler: list[str]) -> Callable[[], None]:
    return lambda: compile_header(header, compiler)


for found in sorted((ROOT / "include" / "manta").glob("*.h")):
    for language, command in LANGUAGES.items():
        globals()[f"test_{found.stem}_as_{language}"] = make_test(found, command)

main(globals())

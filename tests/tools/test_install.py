#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_install.py BUILD - what a user finds after make install, from an installed tree.

The tree is installed under a temporary directory, which also proves that it may be moved.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from tap import ROOT, Skip, main

MAX_OBJECTS = 10  # shared objects that loading libmanta.so may need
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]

PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <manta/manta.h>

int main(void)
{
  const char *text = "{\"lr\": 0.1, \"name\": \"x\"}";
  manta_error err = MANTA_ERROR_INIT;
  manta_value v;
  memset(&v, 0, sizeof v);
  if (manta_value_from_json(&v, text, strlen(text), &err) < 0) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  printf("%s %g\n", MANTA_VERSION, manta_value_as_real(manta_value_get(&v, "lr"), 0.0));
  manta_value_fini(&v);
  return 0;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(guest C)
find_package(manta 0.1 REQUIRED CONFIG)
add_executable(guest main.c)
target_link_libraries(guest PRIVATE manta::manta)
"""

build = Path(sys.argv[1]).resolve()
temporary = tempfile.TemporaryDirectory()
top = Path(temporary.name)
prefix = top / "moved"


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """The file is afterwards as it was: it tells `make uninstall` what a person has installed."""
    before = path.read_bytes() if path.exists() else None
    try:
        yield
    finally:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)


def library(name: str) -> Path:
    """A file of the directory that libraries were installed in."""
    found = sorted(prefix.glob(f"lib*/**/{name}"))
    assert found, f"{name} is not installed"
    return found[0]


def flags(*options: str, of: Path | None = None) -> list[str]:
    """What pkg-config says of manta in the tree; other packages are looked for in the system."""
    where = (of or library("manta.pc").parent)
    return run("pkg-config", *options, "manta", env={"PKG_CONFIG_PATH": str(where)}).split()


def source(suffix: str) -> Path:
    path = top / f"main.{suffix}"
    path.write_text(PROGRAM)
    return path


def expect_output(program: Path) -> None:
    """The program runs with the library of the tree."""
    said = run(program, env={"LD_LIBRARY_PATH": str(library("libmanta.so").parent)})
    assert re.fullmatch(r"\d+\.\d+\.\d+ 0\.1\n", said), said


def needed(program: Path) -> str:
    return run("readelf", "-d", program)


def test_it_installs() -> None:
    with kept(build / "meson-logs" / "install-log.txt"):
        run(ROOT / "scripts" / "meson", "install", "-C", build, "--no-rebuild", "--quiet",
            "--destdir", top / "dest")
    pc = next((top / "dest").glob("**/pkgconfig/manta.pc"))
    while pc.name not in ("lib", "lib64"):
        pc = pc.parent
    pc.parent.rename(prefix)


def test_every_public_header_is_there() -> None:
    ours = {p.name for p in (ROOT / "include" / "manta").glob("*.h")}
    theirs = {p.name for p in (prefix / "include" / "manta").iterdir()}
    assert ours == theirs, ours ^ theirs


def test_the_command_its_pages_and_completion_are_there() -> None:
    assert run(prefix / "bin" / "manta", "version").startswith("manta ")
    share = prefix / "share"
    for page in (ROOT / "docs" / "man").glob("*.[13]"):
        assert (share / "man" / f"man{page.suffix[1]}" / page.name).exists(), page.name
    assert (share / "bash-completion" / "completions" / "manta").exists()


def test_the_versions_agree() -> None:
    header = (prefix / "include" / "manta" / "manta.h").read_text()
    found = re.search(r'MANTA_VERSION +"(.*)"', header)
    assert found and flags("--modversion") == [found.group(1)]


def test_a_c_program_links_dynamically() -> None:
    program = top / "dynamic"
    run("gcc", "-std=c11", *WARNINGS, source("c"), *flags("--cflags", "--libs"), "-o", program)
    assert "libmanta.so.0" in needed(program)
    expect_output(program)


def test_a_c_program_links_statically() -> None:
    """In a copy of the tree that has only libmanta.a."""
    copy = top / "static"
    shutil.copytree(prefix, copy, symlinks=True)
    for shared in copy.glob("lib*/**/libmanta.so*"):
        shared.unlink()
    pc = next(copy.glob("lib*/**/manta.pc")).parent
    program = top / "archive"
    run("gcc", "-std=c11", *WARNINGS, source("c"), *flags("--static", "--cflags", "--libs", of=pc),
        "-o", program)
    assert "libmanta" not in needed(program)
    expect_output(program)


def test_the_program_of_the_readme_runs() -> None:
    """Its workers too: the agent's binary is found from the library's place."""
    text = (ROOT / "README.md").read_text()
    code = top / "readme.c"
    code.write_text(text.split("```c\n")[1].split("```")[0])
    program = top / "readme"
    run("gcc", *WARNINGS[:3], "-Wno-unused-parameter", code, *flags("--cflags", "--libs"), "-o",
        program)
    said = run(program, env={"LD_LIBRARY_PATH": str(library("libmanta.so").parent),
                             "MANTA_RESULTS": str(top / "results"), "MANTA_BIN": "",
                             "PATH": "/nowhere"})
    shown = text.split("```c\n")[1].split("```text\n")[1].split("```")[0]
    assert said == shown, said


def test_the_shell_of_from_c_compiles_and_runs_its_program() -> None:
    text = (ROOT / "docs" / "from-c.md").read_text()
    place = top / "from-c"
    place.mkdir()
    (place / "main.c").write_text(text.split("```c\n")[1].split("```")[0])
    shell = text.split("```sh\n")[1]
    said = run("bash", "-e", "-c", f"cd {place}; {shell.split('```')[0]}", env={
        "PKG_CONFIG_PATH": str(library("manta.pc").parent), "MANTA_BIN": "",
        "LD_LIBRARY_PATH": str(library("libmanta.so").parent),
        "MANTA_RESULTS": str(top / "results")})
    assert said == shell.split("```text\n")[1].split("```")[0], said


def test_a_cxx_program_links() -> None:
    program = top / "cxx"
    run("g++", "-std=c++17", *WARNINGS, source("cpp"), *flags("--cflags", "--libs"), "-o", program)
    expect_output(program)


def test_cmake_finds_it() -> None:
    if not shutil.which("cmake"):
        raise Skip("cmake is not installed")
    project = top / "cmake"
    project.mkdir()
    (project / "main.c").write_text(PROGRAM)
    (project / "CMakeLists.txt").write_text(CMAKE)
    run("cmake", "-G", "Ninja", "-S", project, "-B", project / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", project / "build")
    expect_output(project / "build" / "guest")


def exported(shared: Path) -> set[str]:
    lines = run("nm", "-D", "--defined-only", shared).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def test_only_public_names_are_shown() -> None:
    names = exported(library("libmanta.so"))
    assert "manta_status_name" in names
    inner = sorted(n for n in names if not re.match(r"manta_[^_]", n))
    assert not inner, inner


def test_the_map_hides_what_the_compiler_shows() -> None:
    code = top / "names.c"
    code.write_text("int manta_x, manta__x, manta_x__y, other;\n")
    shared = top / "names.so"
    run("gcc", "-shared", "-fPIC", code, "-o", shared,
        f"-Wl,--version-script={ROOT / 'src' / 'libmanta.map'}")
    assert exported(shared) == {"manta_x", "manta_x__y"}, exported(shared)


def test_nothing_is_undefined() -> None:
    said = run("ldd", "-r", library("libmanta.so"))
    assert "undefined symbol" not in said and "not found" not in said, said


def test_loading_it_takes_few_shared_objects() -> None:
    objects = run("ldd", library("libmanta.so")).splitlines()
    assert len(objects) <= MAX_OBJECTS, "\n".join(objects)


def test_the_public_headers_are_implemented() -> None:
    """Each function that a header declares is in the library."""
    text = "".join(p.read_text() for p in (prefix / "include" / "manta").glob("*.h"))
    declared = set(re.findall(r"^MANTA_API[^;(]*?\b(manta_\w+)\(", text, re.M))
    missing = sorted(declared - exported(library("libmanta.so")))
    assert declared and not missing, missing


main(globals(), sys.argv[2:])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages: well-formed, complete, and their example works."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from bed import ROOT, Bed, Skip, main

bed = Bed()
PAGES = sorted((ROOT / "docs/man").glob("*.[137]"))


def source(page: str) -> str:
    """A page without its escapes."""
    return (ROOT / "docs/man" / page).read_text().replace("\\&", "").replace("\\e", "\\")


def test_lint() -> None:
    if not shutil.which("mandoc"):
        raise Skip("mandoc is not installed")
    done = bed.run("mandoc", "-T", "lint", "-W", "warning", *PAGES)
    assert done.code == 0 and not done.out, done.out


def test_every_page_is_installed() -> None:
    listed = (ROOT / "docs/man/meson.build").read_text()
    assert len(PAGES) > 10
    for page in PAGES:
        assert f"'{page.name}'" in listed, page


def test_every_command_has_a_page() -> None:
    overview = source("manta.1")
    for name in re.findall(r"^  (\w+)  +\S", bed.manta("help").out, re.M):
        assert re.search(rf"^\.It Cm {name}\b", overview, re.M), name
        if name not in ("version", "help"):
            check_page(name)


def check_page(name: str) -> None:
    """Its brief is the help's, and every option is in it."""
    page, said = source(f"manta-{name}.1"), bed.manta(name, "--help").out
    assert f".Nd {said.splitlines()[2]}\n" in page, name
    for letter, option in re.findall(r"^ +(?:-(\w), )?--([a-z]+)", said, re.M):
        if option == "help":
            continue
        assert re.search(rf"^\.It .*Fl -{option}\b", page, re.M), (name, option)
        assert not letter or re.search(rf"^\.It Fl {letter}\b", page, re.M), (name, letter)


def test_every_function_of_the_headers_is_in_manta_3() -> None:
    page = source("manta.3")
    for header in (ROOT / "include/manta").glob("*.h"):
        for name in re.findall(r"^MANTA_API [^(]*?\*?(manta_\w+)\(", header.read_text(), re.M):
            assert re.search(rf"\bFn {name}\b", page), (header.name, name)


def test_the_example_of_manta_3_runs() -> None:
    found = re.search(r"^\.Bd -literal\n(.*?)^\.Ed", source("manta.3"), re.M | re.S)
    assert found
    (bed.root / "example.c").write_text(found.group(1))
    lib = Path(os.environ["MANTA_LIBDIR"])
    flags = os.environ["MANTA_CFLAGS"].split()
    built = bed.run(os.environ.get("CC", "cc"), "-Wall", "-Werror", *flags,
                    f"-I{ROOT}/include", "example.c", "-o", "example", f"-L{lib}", "-lmanta",
                    f"-Wl,-rpath,{lib}")
    assert built.code == 0, built.err
    done = bed.manta("run", "./example")
    assert done.code == 0, done
    status = bed.status()
    assert status["workers"] == 4 and status["iteration"] == 10 and status["results"] == [10] * 4


main(globals())

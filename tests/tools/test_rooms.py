#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check-rooms lets the real tree pass, and fails on trees that break the table."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tap import ROOT, main

TABLE = "base:\nbase <manta>: status\nsys: base\nwire: base sys\nevent: *\n"


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "check-rooms"), str(root)],
                          capture_output=True, text=True)
    return done.returncode, done.stdout


def check_one(path: str, source: str, table: str = TABLE) -> tuple[int, str]:
    """The verdict on a tree that holds this one file."""
    with tempfile.TemporaryDirectory() as d:
        root = Path(d)
        for name, text in {"tools/rooms.txt": table, path: source}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return check(root)


def test_this_tree_keeps_its_rooms() -> None:
    code, said = check(ROOT)
    assert code == 0, said


def test_allowed_includes_pass() -> None:
    source = '#include "wire/frame.h"\n#include <stdio.h>\n#include "sys/sock.h"\n'
    assert check_one("src/wire/frame.c", source + "#include <manta/value.h>\n") == (0, "")


def test_an_upward_include_fails_with_its_line() -> None:
    code, said = check_one("src/sys/sock.c", '#include "base/buf.h"\n  #  include "wire/frame.h"\n')
    assert code == 1
    assert said.startswith('src/sys/sock.c:2: sys/ may not include "wire/frame.h"'), said


def test_an_unknown_room_fails() -> None:
    code, said = check_one("src/wire/a.c", '#include "attic/b.h"\n')
    assert code == 1 and "src/wire/a.c:1" in said and "no room" in said, said
    code, said = check_one("src/attic/a.c", "")
    assert code == 1 and "room 'attic'" in said, said


def test_an_include_without_a_room_fails() -> None:
    code, said = check_one("src/wire/a.c", '#include "frame.h"\n')
    assert code == 1 and 'write "wire/frame.h"' in said, said


def test_a_file_outside_of_all_rooms_fails() -> None:
    code, said = check_one("src/a.c", "")
    assert code == 1 and "belongs in a room" in said, said


def test_a_public_header_that_is_not_listed_fails() -> None:
    assert check_one("src/base/a.c", "#include <manta/status.h>\n")[0] == 0
    code, said = check_one("src/base/a.c", "#include <manta/trainer.h>\n")
    assert code == 1 and "<manta/trainer.h>" in said, said


SUBS = "base:\ncomm/shm: base\ncomm/ucx: base\ncomm: base comm/shm\ntrain: comm\n"


def test_a_room_in_a_room_is_one_of_its_own() -> None:
    assert check_one("src/comm/comm.c", '#include "comm/shm/team.h"\n', SUBS) == (0, "")
    for path, include in (("src/comm/comm.c", "comm/ucx/ucx.h"),
                          ("src/train/a.c", "comm/shm/team.h"),
                          ("src/comm/shm/a.c", "comm/comm.h"),
                          ("src/comm/ucx/a.c", "comm/shm/team.h")):
        code, said = check_one(path, f'#include "{include}"\n', SUBS)
        assert code == 1 and f'may not include "{include}"' in said, said


def test_a_folder_that_is_not_listed_belongs_to_its_room() -> None:
    assert check_one("src/train/deep/a.c", '#include "comm/comm.h"\n', SUBS) == (0, "")
    assert check_one("src/comm/deep/a.c", '#include "train/run.h"\n', SUBS)[0] == 1


def test_a_table_with_a_cycle_is_refused() -> None:
    code, said = check_one("src/base/a.c", "", "base: sys\nsys: base\n")
    assert code == 2 and "not above" in said, said


def test_an_empty_table_is_refused() -> None:
    assert check_one("src/base/a.c", "", "# nothing\n")[0] == 2


main(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta info: what is described, the table of variables, and the manual that says the same."""

from __future__ import annotations

import os
import re
from typing import Any

from bed import MANTA, ROOT, Bed, main

bed = Bed()
bed.env.pop("MANTA_RESULTS")
bed.env["HOME"] = str(bed.root)


def params(**env: str) -> dict[str, dict[str, Any]]:
    done = bed.manta("info", "--params", "--json", **env)
    return {row["name"]: row for row in done.json()}


def test_this_manta_is_described() -> None:
    lines = {line[:12].strip(): line[12:] for line in bed.manta("info").out.splitlines()}
    assert lines["version"] == bed.manta("version").out.split()[1], lines
    assert lines["command"] == os.path.realpath(MANTA)
    assert lines["results"] == str(bed.root / "manta_results")
    assert re.fullmatch(r"\w+, (gcc|clang) .*, id [0-9a-f]{16}", lines["build"]), lines
    assert lines["variables"] == "none is set; manta info --params lists them"
    assert re.match(r"[\d.]+ \(affinity mask \d+, cgroup quota ", lines["CPUs"]), lines


def test_modules_are_found_where_the_variable_says() -> None:
    (bed.root / "modules").mkdir()
    made = bed.root / "modules/libmanta-nccl.so"
    made.touch()
    said = bed.manta("info", "--json", MANTA_MODULES=str(made.parent)).json()
    assert said["modules"] == {"nccl": str(made), "ucx": None, "dash": None}, said
    text = bed.manta("info", MANTA_MODULES=str(made.parent)).out
    assert f"modules     nccl  {made}\n            ucx   not found\n" in text, text


def test_json_has_the_same() -> None:
    said = bed.manta("info", "--json", MANTA_LOG="info").json()
    assert set(said) == {"version", "machine", "compiler", "build", "command", "host", "kernel",
                         "cpus", "memory", "memory_available", "results", "modules", "gpus",
                         "variables"}
    assert said["variables"] == {"MANTA_LOG": "info"} and said["cpus"] > 0 and said["memory"] > 0
    assert isinstance(said["gpus"], list) and said["machine"] == os.uname().machine


def test_variables_that_are_set_are_shown() -> None:
    out = bed.manta("info", MANTA_LOG="info", MANTA_GRACE="\033[31m5").out
    assert "variables   MANTA_LOG=info\n            MANTA_GRACE=?[31m5\n" in out, out


def test_the_table_says_where_a_value_comes_from() -> None:
    done = bed.manta("info", "--params", MANTA_GRACE="2.5", MANTA_LOG="")
    rows = {line.split()[0]: re.split(r"  +", line) for line in done.out.splitlines()}
    assert done.code == 0 and not done.err, done
    assert rows["NAME"] == ["NAME", "VALUE", "DEFAULT", "FROM", "MEANING"]
    assert rows["MANTA_GRACE"][:4] == ["MANTA_GRACE", "2.5", "30", "environment"]
    assert rows["MANTA_LOG"][:4] == ["MANTA_LOG", "warn", "warn", "default"]
    assert rows["MANTA_NUM_CPUS"][:4] == ["MANTA_NUM_CPUS", "-", "those detected", "default"]
    assert set(rows) - {"NAME"} == set(params())


def test_json_has_values_of_their_types() -> None:
    rows = params(MANTA_GRACE="2.5", MANTA_STRICT="yes", MANTA_PDB="3", MANTA_HOSTS="here 2")
    assert rows["MANTA_GRACE"] == {
        "name": "MANTA_GRACE", "value": 2.5, "default": 30, "from": "environment",
        "type": "number", "unit": "seconds", "otherwise": None, "for": "users",
        "meaning": "seconds that a program has to end after manta run got SIGTERM"}
    assert rows["MANTA_STRICT"]["value"] is True and rows["MANTA_STRICT"]["default"] is False
    assert rows["MANTA_PDB"]["value"] == 3 and rows["MANTA_PDB"]["default"] is None
    assert rows["MANTA_HOSTS"]["value"] == "here 2"
    assert rows["MANTA_NUM_WORKERS"]["value"] == 1
    assert rows["MANTA_NUM_WORKERS"]["from"] == "default"


def test_wrong_values_are_shown_and_named() -> None:
    wrong = {"MANTA_GRACE": "long", "MANTA_NUM_WORKERS": "0"}
    done = bed.manta("info", "--params", **wrong)
    assert done.code == 2 and done.err.count("\n") == 2, done
    assert 'MANTA_GRACE must be a number of seconds from 0 to 1000000000, not "long"' in done.err
    assert re.search(r"^MANTA_GRACE +long +30 +environment ", done.out, re.M), done
    done = bed.manta("info", "--params", "--json", **wrong)
    rows = {row["name"]: row for row in done.json()}
    assert done.code == 2 and rows["MANTA_GRACE"]["value"] == "long"
    assert "number of workers" in rows["MANTA_NUM_WORKERS"]["error"]
    assert sum("error" in row for row in rows.values()) == 2
    assert bed.manta("info", **wrong).code == 0


# --- The manual ----------------------------------------------------------------------------------

READERS = {"For users": "users", "For operators": "operators", "For debugging": "debugging",
           "For manta": "manta"}


def manual() -> dict[str, tuple[str, str]]:
    """NAME: (who it is for, the text of its paragraph without its markup)."""
    found = {}
    text = (ROOT / "docs/man/manta-params.7").read_text().replace("\\&", "")
    for section in re.split(r"^\.Ss ", text, flags=re.M)[1:]:
        title, _, rest = section.partition("\n")
        for item in re.split(r"^\.It Ev ", rest.split("\n.El")[0], flags=re.M)[1:]:
            name, _, words = item.partition("\n")
            words = re.sub(r"^\.Pa (.*) \.$", r"\1.", words, flags=re.M)
            found[name] = (READERS[title], words)
    return found


def test_the_manual_has_the_rows_of_the_table() -> None:
    rows, told = params(), manual()
    assert list(rows) == list(told), set(rows) ^ set(told)
    for name, row in rows.items():
        reader, words = told[name]
        meaning = row["meaning"][0].upper() + row["meaning"][1:] + "."
        assert reader == row["for"], name
        assert words.startswith(f"{meaning}\n"), (name, meaning)
        assert re.search(rf"Default: ?\n?{re.escape(default_of(row))}\.", words), (name, words)


def default_of(row: dict[str, Any]) -> str:
    """As the table for people has it."""
    default = row["otherwise"] if row["default"] is None else row["default"]
    return str(int(default)) if isinstance(default, (bool, float)) else str(default)


def test_the_manual_has_the_words_and_the_limits() -> None:
    """As the message about a wrong value names them."""
    told = manual()
    for name, row in params().items():
        if row["for"] == "manta" or row["type"] not in ("word", "whole number"):
            continue
        said = bed.manta("info", "--params", **{name: "?"}).err
        if row["type"] == "word":
            for word in re.findall(r"\w+", said.partition("must be")[2].partition(", not")[0]):
                assert word == "or" or re.search(rf"^\.Cm .*\b{word}\b", told[name][1], re.M), word
        elif name != "MANTA_PDB":  # a rank has no limit but the run's
            limits = re.search(r"from (\d+) to (\d+)", said)
            assert limits and f"From {limits[1]} to {limits[2]}." in told[name][1], (name, said)


main(globals())

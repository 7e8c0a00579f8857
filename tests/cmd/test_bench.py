#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta bench comm: it runs, its results are right, and its figures fit together."""

from __future__ import annotations

import re
from typing import Any

from bed import Bed, main

bed = Bed()
QUICK = ["--ms", "1"]
OPS = {"allreduce": 2 / 3 * 2, "reduce": 1, "broadcast": 1, "allgather": 2 / 3,
       "reduce_scatter": 2 / 3, "alltoall": 2 / 3, "gather": 2 / 3, "scatter": 2 / 3,
       "sendrecv": 1}
ALL_SENT_OR_GOT = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")


def measure(*words: object) -> dict[str, Any]:
    done = bed.manta("bench", "comm", "--json", *QUICK, *words)
    assert done.code == 0, done
    return done.json()


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * abs(b)


def test_every_collective_is_right() -> None:
    for op, factor in OPS.items():
        for memory in ([], ["--private"]):
            said = measure("-n", 3, "--op", op, "--from", "12", "--to", "300K", "--factor", "157",
                           *memory)
            assert said["workers"] == 3 and said["wrong"] == 0 and said["op"] == op, said
            assert said["memory"] == ("private" if memory else "shared")
            assert len(said["rows"]) == 3, said
            check_rows(said, 3 if op in ALL_SENT_OR_GOT else 1, factor)


def check_rows(said: dict[str, Any], blocks: int, factor: float) -> None:
    for row in said["rows"]:
        assert row["bytes"] == row["count"] * 4 * blocks and row["count"] > 0, row
        assert 0 < row["min_us"] <= row["p50_us"] <= row["p99_us"] and row["calls"] >= 5, row
        assert close(row["algbw"], row["bytes"] / row["p50_us"] / 1e3), row
        assert close(row["busbw"], row["algbw"] * factor), row
    mean = sum(row["busbw"] for row in said["rows"]) / len(said["rows"])
    assert close(said["busbw"], mean), said


def test_every_type_is_right() -> None:
    for kind, size in {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "i16": 2, "i32": 4,
                       "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8}.items():
        said = measure("-n", 2, "--type", kind, "--from", "16K", "--to", "16K")
        assert said["type"] == kind and said["wrong"] == 0
        assert said["rows"][0]["count"] == 16384 // size


def test_the_table_is_that_of_nccl_tests() -> None:
    done = bed.manta("bench", "comm", *QUICK, "-n", 2, "--to", "64", "--pin")
    lines = done.out.splitlines()
    assert done.code == 0 and not done.err, done
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert [row[0] for row in rows] == ["4", "16", "64"], done.out
    assert all(row[2:5] == ["f32", "sum", "-1"] and row[-1] == "0" for row in rows), rows
    titles = next(line for line in lines if "#wrong" in line).split()
    assert titles[1:] == ["size", "count", "type", "redop", "root", "min", "p50", "p99", "algbw",
                          "busbw", "#wrong"] and all(len(row) == 11 for row in rows)
    assert "# Wrong values      : 0 OK" in lines
    assert re.search(r"^# Avg bus bandwidth : \d+\.\d+ GB/s$", done.out, re.M), done.out


def test_what_does_not_fit_is_left_out() -> None:
    none = measure("-n", 3, "--op", "alltoall", "--from", "4", "--to", "8", "--factor", "2")
    assert none["rows"] == [] and none["busbw"] == 0
    huge = bed.manta("bench", "comm", *QUICK, "-n", 2, "--from", "512G", "--to", "512G")
    assert huge.code == 0 and "do not fit into memory" in huge.err, huge


def test_nothing_is_left_behind() -> None:
    assert not bed.runs()
    bed.gone()


main(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta ckpt: listed, shown, verified, exported."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

from bed import COUNTER, Bed, main

bed = Bed()


def checkpoints(run: Path | None = None) -> Path:
    return (run or bed.runs()[-1]) / "checkpoints"


def header(path: Path) -> dict:
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + n])


def broken_copy(name: str) -> Path:
    """The run again, with one bit of the newest checkpoint's tensors flipped."""
    run = bed.root / name
    shutil.copytree(bed.runs()[-1], run)
    state = checkpoints(run) / "000003" / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    return run


def test_ls() -> None:
    assert bed.manta("run", "-n", 2, COUNTER, 6, 2, 0).code == 0
    lines = bed.manta("ckpt", "ls", "latest").out.splitlines()
    assert lines[0].split() == ["name", "iteration", "score", "size", "age"], lines
    assert lines[-1].split()[:3] == ["000003", "6", "0.166667"]
    assert lines[-1].endswith("newest, best") and lines[-1].split()[3:5] == ["17", "kB"], lines


def test_ls_in_json() -> None:
    rows = bed.manta("ckpt", "ls", "latest", "--json").json()
    assert [r["iteration"] for r in rows] == [4, 6] and rows[1]["newest"] and rows[1]["best"]
    assert not rows[0]["best"] and rows[1]["score"] == 1 / 6 and rows[1]["bytes"] > 16384


def test_show() -> None:
    done = bed.manta("ckpt", "show", "latest")
    assert done.code == 0 and done.out.startswith("checkpoint 000003, iteration 6"), done
    assert "ballast  F32   64 x 64  16 kB" in done.out and '"count": 6' in done.out, done
    one = bed.manta("ckpt", "show", "latest", "2", "--json").json()
    assert one["name"] == "000002" and one["value"] == {"count": 4, "kind": "counter"}
    assert {"name": "ballast", "dtype": "F32", "shape": [64, 64], "bytes": 16384} in one["tensors"]
    assert bed.manta("ckpt", "show", "latest", "best", "--json").json()["name"] == "000003"


def test_what_is_not_there() -> None:
    done = bed.manta("ckpt", "show", "latest", "99")
    assert done.code == 3 and "has no checkpoint 99" in done.err, done
    assert bed.manta("ckpt", "verify", "latest", "99").code == 3
    none = bed.root / "none"
    shutil.copytree(bed.runs()[-1], none)
    shutil.rmtree(checkpoints(none))
    for what in ("show", "verify"):
        done = bed.manta("ckpt", what, none)
        assert done.code == 3 and done.err == "manta: none has no checkpoint\n", done
    assert bed.manta("ckpt", "ls", none, "--json").out == "[]\n"


def test_verify() -> None:
    done = bed.manta("ckpt", "verify", "latest")
    assert done.code == 0 and done.out == "000002  ok\n000003  ok\n", done


def test_verify_finds_a_flipped_bit() -> None:
    run = broken_copy("flipped")
    done = bed.manta("ckpt", "verify", run)
    assert done.code == 1 and "000002  ok\n" in done.out, done
    assert "000003  BAD: 000003/state.safetensors does not match its manifest\n" in done.out
    assert done.err == "manta: 1 of 2 checkpoints of flipped are damaged\n", done
    assert bed.manta("ckpt", "verify", run, "2").code == 0
    assert bed.manta("ckpt", "verify", run, "newest").code == 1
    rows = bed.manta("ckpt", "verify", run, "--json").json()
    assert [r["ok"] for r in sorted(rows, key=lambda r: r["name"])] == [True, False], rows


def test_verify_finds_a_damaged_manifest_and_a_missing_file() -> None:
    run = broken_copy("manifest")
    manifest = checkpoints(run) / "000002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("4", "5", 1))
    (checkpoints(run) / "000003" / "value.msgpack").unlink()
    done = bed.manta("ckpt", "verify", run)
    assert done.code == 1 and done.out.count("BAD") == 2, done


def test_export_a_file() -> None:
    to = bed.root / "out.safetensors"
    done = bed.manta("ckpt", "export", "latest", "--to", to)
    assert done.code == 0 and "checkpoint 000003 (iteration 6, 17 kB)" in done.out, done
    assert to.read_bytes() == (checkpoints() / "000003/state.safetensors").read_bytes()
    assert header(to)["ballast"]["shape"] == [64, 64]
    assert bed.manta("ckpt", "export", "latest", "2", "--to", "out.safetensors").code == 0
    assert to.read_bytes() == (checkpoints() / "000002/state.safetensors").read_bytes()


def test_export_a_directory() -> None:
    to = bed.root / "whole"
    assert bed.manta("ckpt", "export", "latest", "best", "--dir", to).code == 0
    names = sorted(p.name for p in to.iterdir())
    assert names == ["manifest.json", "state.safetensors", "value.msgpack"]
    for name in names:
        assert (to / name).read_bytes() == (checkpoints() / "000003" / name).read_bytes()
    done = bed.manta("ckpt", "export", "latest", "2", "--dir", to)
    assert done.code == 1 and "exists already" in done.err, done


def test_export_refuses_a_flipped_bit() -> None:
    run = broken_copy("refused")
    for words in (["--to", bed.root / "bad.safetensors"], ["--dir", bed.root / "bad"]):
        done = bed.manta("ckpt", "export", run, *words)
        assert done.code == 1 and "000003/state.safetensors does not match" in done.err, done
        assert not words[1].exists()
    assert not list(bed.root.glob(".manta-export-*"))
    assert bed.manta("ckpt", "export", run, "2", "--to", bed.root / "good.safetensors").code == 0


def test_export_says_what_it_needs() -> None:
    done = bed.manta("ckpt", "export", "latest", "--to", "x.pt")
    assert done.code == 1 and done.err.count("\n") == 1 and "Python package" in done.err, done
    for words in ([], ["--to", "x.bin"], ["--to", "x.safetensors", "--dir", "x"]):
        done = bed.manta("ckpt", "export", "latest", *words)
        assert done.code == 2 and done.err.startswith("manta: "), done
    done = bed.manta("ckpt", "export", "latest", "--to", "nowhere/x.safetensors")
    assert done.code == 1 and "nowhere" in done.err, done


main(globals())

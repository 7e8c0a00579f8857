#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_examples.py BUILD - the examples do what they say, and leave no process behind."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import guest
from tap import main

build = Path(sys.argv[1]).resolve()
# With a sanitizer the quickstart would take minutes: then it is a small one.
SLOW = os.environ.get("SLOW_BUILD", "") != ""
EPOCHS, READS = (6, 0.8) if SLOW else (12, 0.97)
SIZE = {"EPOCHS": "6", "DIGITS": "4000"} if SLOW else {}
LAYERS = {"layer1": 785 * 128, "layer2": 129 * 64, "layer3": 65 * 10}


def example(name: str, **env: str) -> guest.Ended:
    done = guest.run(build, build / "examples" / name, **env)
    assert done.code == 0, f"exit status {done.code}\n{done.out}{done.err}"
    return done


def checkpoints(run: Path) -> list[Path]:
    return sorted(p.parent for p in run.glob("checkpoints/*/manifest.json"))


def tensors(checkpoint: Path) -> dict[str, list[float]]:
    """The F32 tensors of a safetensors file, read without manta."""
    raw = (checkpoint / "state.safetensors").read_bytes()
    (n,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + n])
    found = {}
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "F32", t
            begin, end = (8 + n + at for at in t["data_offsets"])
            found[name] = [x for (x,) in struct.iter_unpack("<f", raw[begin:end])]
    return found


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text, re.M)
    assert found, f"no {pattern} in\n{text}"
    return float(found.group(1))


def test_hello() -> None:
    done = example("01_hello")
    for rank in range(4):
        assert f"rank {rank} returned {rank * rank}\n" in done.out, done.out
        assert re.search(rf"^\(rank {rank}\) hello, this is process \d+$", done.out, re.M), done.out
    workers = set(re.findall(r"process (\d+)", done.out))
    assert len(workers) == 4, workers


def test_report_and_checkpoint() -> None:
    done = guest.run(build, build / "examples" / "02_report_and_checkpoint")
    assert done.code == 0, done.err
    shown = [int(i) for i in re.findall(r"^iteration +(\d+)", done.out, re.M)]
    best = int(number(r"best: \d+, iteration (\d+),", done.out))
    assert shown == [*range(1, 13), *range(best + 1, best + 13)], shown
    assert f"continuing from step {best}\n" in done.out, done.out
    first, second = sorted(done.results.iterdir())
    assert len(checkpoints(first)) in (2, 3)  # the two newest, and the best if it is neither
    assert 0 < tensors(checkpoints(second)[-1])["w"][0] < 6


def test_the_best_is_the_smallest_loss() -> None:
    """Of the checkpoints that were written, and rank 0's loss scores them."""
    done = guest.run(build, build / "examples" / "02_report_and_checkpoint")
    rows = re.findall(r"^iteration +(\d+)  loss  ([\d.]+)", done.out, re.M)[:12]
    loss = {int(i): float(x) for i, x in rows}
    best = int(number(r"best: \d+, iteration (\d+),", done.out))
    kept = [json.loads((c / "manifest.json").read_text())["iteration"]
            for c in checkpoints(sorted(done.results.iterdir())[0])]
    assert best in kept and all(loss[best] <= loss[i] for i in kept), (best, kept, loss)


def test_kill_me() -> None:
    done = example("03_kill_me")
    assert "rank 1 killed itself at count 100\n" in done.out, done.out
    assert re.search(r"rank 1 \(pid \d+ on \S+\) killed by signal 9", done.err), done.err
    assert "with 4 ranks\n" in done.out, done.out
    assert number(r"back in the loop ([\d.]+) ms after the kill", done.out) < 10000
    assert "final count 200 on every rank: yes; 200 of 200 iterations seen\n" in done.out, done.out


def test_files_of_a_run() -> None:
    done = example("06_files_of_a_run")
    assert "results.jsonl has 20 lines" in done.out and "progress.csv has 21 lines" in done.out
    (run,) = done.results.iterdir()
    assert [rows[0]["_training_iteration"] for rows in json.loads(
        (run / "results.json").read_text())] == list(range(1, 21))
    assert json.loads((run / "params.json").read_text()) == {"lr": 0.125, "steps": 20}
    assert len(list(run.glob("events.out.tfevents.*"))) == 1


def data_parallel(**env: str) -> list[str]:
    """What the ranks end with."""
    done = example("04_data_parallel", **env)
    assert number(r"^step 500  loss ([\d.]+)$", done.out) < 0.005, done.out
    assert ("continuing from step 140\n" in done.out) == bool(env), done.out
    ends = re.findall(r"^rank \d ends with w2\[1\] = (\S+)$", done.out, re.M)
    assert len(ends) == 4 and len(set(ends)) == 1, done.out
    state = tensors(checkpoints(done.run_dir())[-1])
    assert sorted(state) == ["b1", "b2", "w1", "w2"], state.keys()
    assert float(ends[0]) == float(f"{state['w2'][1]:.9g}"), (ends, state["w2"])
    return ends


def test_data_parallel() -> None:
    assert data_parallel() == data_parallel(KILL="1")


def train_from_csv(**env: str) -> list[str]:
    """What the ranks end with; each epoch has all rows once."""
    done = example("05_train_from_csv", **env)
    shown = re.findall(r"^epoch (\d)  (\d+) rows  price = ([\d.]+) size", done.out, re.M)
    assert [(e, n) for e, n, _ in shown] == [(str(e), "3600") for e in range(3)], done.out
    assert abs(float(shown[-1][2]) - 3) < 0.05, done.out
    assert ("continuing from step 80\n" in done.out) == bool(env), done.out
    return re.findall(r"^rank \d ends with (\S+)$", done.out, re.M)


def test_train_from_csv() -> None:
    ends = train_from_csv()
    assert len(ends) == 2 and len(set(ends)) == 1, ends
    assert train_from_csv(KILL="1") == ends


def test_tune() -> None:
    done = example("10_tune")
    assert number(r"^40 trials, (\d+) stopped early$", done.out) > 10, done.out
    assert number(r"^best: trial \d+, loss (\S+) with", done.out) < 0.1, done.out


def png(path: Path) -> list[bytes]:
    """The rows of an 8-bit picture with a palette; every checksum is looked at."""
    raw = path.read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n", raw[:8]
    at, found = 8, {}
    while at < len(raw):
        (n,) = struct.unpack_from(">I", raw, at)
        assert struct.unpack_from(">I", raw, at + 8 + n)[0] == zlib.crc32(raw[at + 4:at + 8 + n])
        found[raw[at + 4:at + 8]] = raw[at + 8:at + 8 + n]
        at += 12 + n
    assert list(found) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"], found.keys()
    width, height, bits, colour, *rest = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert (bits, colour, rest) == (8, 3, [0, 0, 0])
    data = zlib.decompress(found[b"IDAT"])
    assert len(data) == height * (width + 1)
    return [data[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)]


def red_tiles(rows: list[bytes]) -> int:
    """Digits below the first ten lines of them: the mistakes."""
    tile, top = 60, 10 * 60 + 16
    return sum(any(p > 128 for row in rows[y:y + 56] for p in row[x:x + 56])
               for y in range(top, len(rows), tile) for x in range(0, len(rows[0]), tile))


def check_quickstart(done: guest.Ended) -> str:
    """All but the way there; gives the hash of the weights."""
    shown = [int(e) for e in re.findall(r"^epoch +(\d+)/", done.out, re.M)]
    assert sorted(set(shown)) == [*range(1, EPOCHS + 1)], done.out
    assert "\033" not in done.out and "\r" not in done.out, done.out  # this is no terminal
    right = int(number(r"held-out +[\d.]+ %, (\d+) of 4000 digits", done.out))
    assert right >= 4000 * READS, done.out
    run = done.run_dir()
    assert red_tiles(png(run / "digits.png")) == min(4000 - right, 4 * 24)
    newest = checkpoints(run)[-1]
    assert json.loads((newest / "manifest.json").read_text())["iteration"] == EPOCHS
    state = tensors(newest)
    assert {k: len(v) for k, v in state.items()} == \
        {**LAYERS, "momentum": sum(LAYERS.values())}
    assert str(run) in done.out, done.out
    found = re.search(r"weights +([0-9a-f]{16}) on all ranks", done.out)
    assert found, done.out
    assert int(found[1], 16) == fnv(state), done.out
    return found[1]


def fnv(state: dict[str, list[float]]) -> int:
    """FNV-1a of the bytes of all layers."""
    value = 0xcbf29ce484222325
    for name in LAYERS:
        for byte in struct.pack(f"<{LAYERS[name]}f", *state[name]):
            value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


hashes: list[str] = []  # of the weights of whole runs


def test_quickstart() -> None:
    done = example("quickstart", **SIZE)
    hashes.append(check_quickstart(done))
    assert "again after" not in done.out and "reviving" not in done.err, done.err


def test_quickstart_with_a_kill_ends_with_the_same_weights() -> None:
    done = example("quickstart", KILL="1", **SIZE)
    (pid,) = re.findall(rf"^kill -9 (\d+): rank 1, in the middle of epoch {EPOCHS // 2 + 1}$",
                        done.out, re.M)
    assert re.search(rf"rank 1 \(pid {pid} on \S+\) killed by signal 9", done.err), done.err
    assert re.search(r"^all 4 ranks train again [\d.]+ ms after the kill", done.out, re.M)
    hashes.append(check_quickstart(done))
    assert len(hashes) == 2 and hashes[0] == hashes[1], hashes


def test_quickstart_twice_has_the_same_weights() -> None:
    """In small; and another training has others."""
    found = [re.findall(r"weights +(\w{16})", example("quickstart", EPOCHS=e, DIGITS="1000").out)
             for e in ("2", "2", "3")]
    assert found[0] and found[0] == found[1] != found[2], found


def test_quickstart_is_asked_to_stop() -> None:
    results = guest.scratch("term")
    with subprocess.Popen([build / "examples" / "quickstart"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=guest.environment(build, results, DIGITS="4000", EPOCHS="1000")
                          ) as driver:
        assert driver.stdout
        while not driver.stdout.readline().startswith("epoch  1/"):
            assert driver.poll() is None
        while not list(results.glob("*/checkpoints/*/manifest.json")):
            time.sleep(0.01)
        driver.send_signal(signal.SIGTERM)
        _, said = driver.communicate(timeout=guest.LIMIT_S)
    assert driver.returncode == 75, (driver.returncode, said)
    assert "asked to stop" in said, said
    (run,) = results.iterdir()
    assert checkpoints(run)


main(globals(), sys.argv[2:])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_examples.py BUILD - the examples do what they say, and leave no process behind."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import guest
from tap import main

build = Path(sys.argv[1]).resolve()
EPOCHS = 100


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
    assert f"going on from step {best}\n" in done.out, done.out
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


def data_parallel(**env: str) -> list[str]:
    """What the ranks end with."""
    done = example("04_data_parallel", **env)
    assert number(r"^step 500  loss ([\d.]+)$", done.out) < 0.005, done.out
    assert ("going on from step 140\n" in done.out) == bool(env), done.out
    ends = re.findall(r"^rank \d ends with w2\[1\] = (\S+)$", done.out, re.M)
    assert len(ends) == 4 and len(set(ends)) == 1, done.out
    state = tensors(checkpoints(done.run_dir())[-1])
    assert sorted(state) == ["b1", "b2", "w1", "w2"], state.keys()
    assert float(ends[0]) == float(f"{state['w2'][1]:.9g}"), (ends, state["w2"])
    return ends


def test_data_parallel() -> None:
    assert data_parallel() == data_parallel(KILL="1")


def check_quickstart(done: guest.Ended) -> None:
    rows = re.findall(r"^ +(\d) +([\d.]+) +([\d.]+) +\d+$", done.out, re.M)
    assert [int(r[0]) for r in rows] == [0, 1, 2, 3], done.out
    for _, train, held_out in rows:  # the noise alone is 0.01; NaN fails
        assert 0.008 < float(train) < 0.015 and 0.008 < float(held_out) < 0.015, done.out
    assert number(r" all +([\d.]+) +mean of the predictions", done.out) < 0.0125, done.out
    newest = checkpoints(done.run_dir())[-1]
    assert json.loads((newest / "manifest.json").read_text())["iteration"] == EPOCHS
    state = tensors(newest)
    assert set(state) == {"params", "momentum"} and len(state["params"]) == 129, state.keys()
    assert str(done.run_dir()) in done.out, done.out


def test_quickstart() -> None:
    done = example("quickstart")
    check_quickstart(done)
    assert "go on from" not in done.out and "reviving" not in done.err, done.err


def test_quickstart_with_a_kill() -> None:
    done = example("quickstart", KILL="1")
    assert re.search(r"rank 1 .* killed by signal 9", done.err), done.err
    assert re.search(r"^all go on from epoch \d+$", done.out, re.M), done.out
    check_quickstart(done)


def test_quickstart_is_asked_to_stop() -> None:
    results = guest.scratch("term")
    with subprocess.Popen([build / "examples" / "quickstart"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=guest.environment(build, results)) as driver:
        assert driver.stdout
        while not driver.stdout.readline().startswith("epoch   1/"):
            assert driver.poll() is None
        while not list(results.glob("*/checkpoints/*/manifest.json")):
            time.sleep(0.01)
        driver.send_signal(signal.SIGTERM)
        _, said = driver.communicate(timeout=guest.LIMIT_S)
    assert driver.returncode == 75, (driver.returncode, said)
    assert "asked to stop" in said, said
    (run,) = results.iterdir()
    assert checkpoints(run)


main(globals())

# SPDX-License-Identifier: Apache-2.0
"""The Python twins of the examples in C say what those say; tests/tools/test_examples.py runs the
others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str, results: Path, **env: str) -> tuple[str, str]:
    """What it prints, and what it says on standard error."""
    done = subprocess.run([sys.executable, EXAMPLES / name / "main.py"], text=True, timeout=50,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          env={**os.environ, "MANTA_RESULTS": str(results), **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text, re.M)
    assert found, f"no {pattern} in\n{text}"
    return float(found[1])


def test_every_example_has_its_twin() -> None:
    numbered = sorted(p.name for p in EXAMPLES.glob("[0-9]*"))
    assert numbered and all((EXAMPLES / n / "main.py").exists() for n in numbered)


def test_hello(tmp_path: Path) -> None:
    out, _ = example("01_hello", tmp_path)
    for rank in range(4):
        assert f"rank {rank} returned {rank * rank}\n" in out
    assert len(set(re.findall(r"\(rank \d\) hello, this is process (\d+)", out))) == 4


def test_report_and_checkpoint(tmp_path: Path) -> None:
    out, _ = example("02_report_and_checkpoint", tmp_path)
    best = int(number(r"^best: \d+, step (\d+),", out))
    shown = [int(i) for i in re.findall(r"^iteration +(\d+)", out, re.M)]
    assert shown == [*range(1, 13), *range(best + 1, best + 13)]
    assert f"continuing from step {best}\n" in out
    first, second = sorted(tmp_path.iterdir())
    assert first.name.startswith("02_report_and_checkpoint_")
    assert 2 <= len(list(first.glob("checkpoints/*/manifest.json"))) <= 3


def test_train_from_csv(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    ends = []
    for env in ({}, {"KILL": "1"}):
        out, err = example("05_train_from_csv", tmp_path, **env)
        shown = re.findall(r"^epoch (\d)  (\d+) rows  price = ([\d.]+) size", out, re.M)
        assert [(e, n) for e, n, _ in shown] == [(str(e), "3600") for e in range(3)], out
        assert abs(float(shown[-1][2]) - 3) < 0.05, out
        assert ("continuing from step 80\n" in out) == ("killed by signal 9" in err) == bool(env)
        ends += re.findall(r"^rank \d ends with (\S+)$", out, re.M)
    assert len(ends) == 4 and len(set(ends)) == 1, ends


def test_files_of_a_run(tmp_path: Path) -> None:
    out, _ = example("06_files_of_a_run", tmp_path)
    assert "results.jsonl has 20 lines" in out and "progress.csv has 21 lines" in out
    (run,) = tmp_path.iterdir()
    assert len(list(run.glob("events.out.tfevents.*"))) == 1


def test_kill_me(tmp_path: Path) -> None:
    out, err = example("03_kill_me", tmp_path)
    assert re.search(r"^rank 1 killed itself at count 100$", out, re.M), out
    assert re.search(r"rank 1 \(pid \d+ on \S+\) killed by signal 9", err), err
    assert "with 4 ranks\n" in out
    assert "final count 200 on every rank: yes; 200 of 200 iterations seen\n" in out


def test_data_parallel(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    ends = []
    for env in ({}, {"KILL": "1"}):
        out, err = example("04_data_parallel", tmp_path, **env)
        assert ("continuing from step 140\n" in out) == ("killed by signal 9" in err) == bool(env)
        assert number(r"^step 500  loss ([\d.]+)$", out) < 0.005
        ends += re.findall(r"^rank \d ends with w2\[1\] = (\S+)$", out, re.M)
    assert len(ends) == 4 and len(set(ends)) == 1, ends

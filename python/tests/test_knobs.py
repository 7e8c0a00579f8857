# SPDX-License-Identifier: Apache-2.0
"""MANTA_* environment variables: what Python reads, and what it says of a wrong value."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import manta
from manta import _manta, sgd
from manta.sgd import Trainer
from manta._front.resources import worker_range

SECONDS = r'^MANTA_GROW_AFTER must be a number of seconds from 0 to 1000000000, not "abc"$'


@pytest.mark.parametrize("name, text, value", [
    ("MANTA_NUM_WORKERS", "3", 3), ("MANTA_NUM_WORKERS", "", 1),
    ("MANTA_NUM_CPUS", "2.5", 2.5), ("MANTA_NUM_CPUS", "", None),
    ("MANTA_STRICT", "yes", True), ("MANTA_STRICT", "0", False), ("MANTA_STRICT", "", False),
    ("MANTA_LOG", "debug", "debug"), ("MANTA_LOG", "", "warn"),
    ("MANTA_HOSTS", "here 2; möwe 1", "here 2; möwe 1"), ("MANTA_GRACE", "", 30.0),
    ("MANTA_RESUME", "1f", "1f")])
def test_a_value_has_its_type(name: str, text: str, value: Any,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    assert _manta.knob(name) == value and type(_manta.knob(name)) is type(value)


def test_wrong_values_and_names_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_GROW_AFTER", "abc")
    with pytest.raises(ValueError, match=SECONDS):
        _manta.knob("MANTA_GROW_AFTER")
    with pytest.raises(ValueError, match='^manta has no environment variable "MANTA_NOTHING"$'):
        _manta.knob("MANTA_NOTHING")
    with pytest.raises(TypeError):
        _manta.knob(1)  # type: ignore[arg-type]


def test_a_trainer_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_GROW_AFTER", "abc")
    with pytest.raises(ValueError, match=SECONDS):
        Trainer(None)
    with pytest.raises(ValueError, match=SECONDS):
        manta.prestart("none")


def test_a_run_refuses_and_the_next_one_does_not(tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    with Trainer(None, num_workers=1, quiet=True, logdir=tmp_path) as t:
        t.start()
        monkeypatch.setenv("MANTA_GROW_AFTER", "abc")
        with pytest.raises(ValueError, match=SECONDS):
            t.run(lambda: 1)
        monkeypatch.setenv("MANTA_GROW_AFTER", "1")
        assert t.run(lambda: 1) == [1]


def test_what_python_itself_asks_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANTA_NUM_CPUS", "many")
    with pytest.raises(ValueError, match="^MANTA_NUM_CPUS must be a number of CPUs"):
        worker_range((1, math.inf))
    monkeypatch.setenv("MANTA_NUM_CPUS", "7")
    assert worker_range((1, math.inf)) == (7, 1)
    monkeypatch.setenv("MANTA_STRICT", "maybe")
    with pytest.raises(ValueError, match=r"^MANTA_STRICT must be 1 or 0"):
        sgd.report(x=1)
    monkeypatch.setenv("MANTA_AMX", "some")
    with pytest.raises(ValueError, match="^MANTA_AMX must be none, ok or trap, not \"some\"$"):
        _manta.amx_cure()


def test_a_typing_error_is_told_once(tmp_path: Path) -> None:
    """Of a driver's two trainers, and not again by its workers."""
    script = tmp_path / "driver.py"
    script.write_text("from manta.sgd import Trainer\n"
                      "def nested():\n"
                      "    Trainer(None, num_workers=1, logdir='.').shutdown()\n"
                      "for _ in range(2):\n"
                      "    with Trainer(None, num_workers=1, logdir='.') as t:\n"
                      "        t.run(nested)\n")
    env = {**os.environ, "MANTA_GROW_AFTR": "1", "MANTA_ELSEWHERE": "1"}
    done = subprocess.run([sys.executable, script], env=env, cwd=tmp_path, capture_output=True,
                          text=True, timeout=60)
    said = "unknown environment variable MANTA_GROW_AFTR; did you mean MANTA_GROW_AFTER?"
    assert done.returncode == 0 and done.stderr.count("unknown environment variable") == 1, done
    assert said in done.stderr

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta tune: an experiment shown, its best trial, and continued after its driver was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from bed import MANTA, Bed, main

bed = Bed()
TUNE = os.environ["MANTA_TUNE"]


def experiments() -> list[Path]:
    return sorted(p.parents[1] for p in bed.root.rglob("experiment/run.log"))


def run_example() -> Path:
    if not experiments():
        done = bed.manta("run", TUNE)
        assert done.code == 0 and "best: trial" in done.out, done
    return experiments()[0]


def test_status_shows_the_trials_and_the_best() -> None:
    found = run_example()
    done = bed.manta("tune", "status", found)
    assert done.code == 0, done
    for text in ("finished", "best", "loss", "TRIAL", "stopped", "the newest 20 of 40"):
        assert text in done.out, (text, done)
    told = json.loads(bed.manta("tune", "status", "--json", found).out)
    assert told["state"] == "finished" and len(told["trials"]) == 40
    assert told["finished"] + told["stopped"] == 40


def test_ls_lists_experiments_and_status_shows_them() -> None:
    found = run_example()
    done = bed.manta("ls", found.parent)
    assert done.code == 0 and f"{found.name}  finished" in done.out and "40/40" in done.out, done
    assert "experiment " in done.out and "iteration" not in done.out, done
    (told,) = (x for x in json.loads(bed.manta("ls", "--json", found.parent).out)
               if x["name"] == found.name)
    best = json.loads(bed.manta("tune", "best", "--json", found).out)
    assert told["kind"] == "experiment" and (told["done"], told["trials"]) == (40, 40)
    assert told["best"] == {"metric": "loss", "goal": "min", "trial": best["trial"],
                            "value": best["best"]["loss"]}
    assert told["bytes"] > 0 and told["age"] > 0 and told["path"] == str(found)
    assert bed.manta("status", found).out == bed.manta("tune", "status", found).out


def test_best_prints_the_config() -> None:
    found = run_example()
    config = json.loads(bed.manta("tune", "best", found).out)
    assert set(config) == {"rate", "momentum"}
    best = json.loads(bed.manta("tune", "best", "--json", found).out)
    assert best["config"] == config and best["best"]["loss"] < 1
    worst = json.loads(bed.manta("tune", "best", "--json", "--mode", "max", found).out)
    assert worst["trial"] != best["trial"]
    done = bed.manta("tune", "best", "--metric", "lose", found)
    assert done.code != 0 and "loss" in done.err, done


def test_what_is_not_there_is_named() -> None:
    done = bed.manta("tune", "status", "nowhere")
    assert done.code == 3 and "nowhere" in done.err, done


def test_a_killed_experiment_is_continued() -> None:
    run_example()
    before = set(experiments())
    driver = subprocess.Popen([TUNE], env=bed.env | {"MANTA_BIN": MANTA}, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while set(experiments()) == before and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    (found,) = set(experiments()) - before
    told = json.loads(bed.manta("tune", "status", "--json", found).out)
    assert told["state"] == "interrupted", told["state"]
    done = bed.manta("tune", "resume", found)
    assert done.code == 0 and "40 trials" in done.out, done
    told = json.loads(bed.manta("tune", "status", "--json", found).out)
    assert told["state"] == "finished" and told["finished"] + told["stopped"] == 40


main(globals())

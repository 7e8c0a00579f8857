#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta kill, resize and notice: what is asked of a run from outside."""

from __future__ import annotations

import os
import shutil
import signal
import time

from bed import COUNTER, Bed, driver_of, main, wait_for

bed = Bed()
LONG = (1000000, 20, 1000)


def test_kill_ends_the_run_and_every_process() -> None:
    p = bed.counting(*LONG)
    name = bed.runs()[-1].name
    done = bed.manta("kill", "latest")
    assert done.code == 0 and done.out == f"ended {name}\n", done
    bed.gone(1.0)
    assert bed.finish(p).code == 1
    assert bed.status()["state"] == "interrupted"


def test_kill_of_what_does_not_run() -> None:
    done = bed.manta("kill", "latest")
    assert done.code == 1 and "is not running: it was interrupted" in done.err, done
    assert bed.manta("run", COUNTER, 2, 1, 0).code == 0
    done = bed.manta("kill", "latest")
    assert done.code == 1 and "is not running: it finished" in done.err, done
    for words in (["resize", "latest", 2], ["notice", "latest"]):
        assert bed.manta(*words).code == 1


def test_kill_now() -> None:
    p = bed.counting(*LONG)
    pid = driver_of(bed)
    done = bed.manta("kill", "--now", "latest")
    assert done.code == 0 and done.out.endswith(f"and its program (pid {pid})\n"), done
    bed.gone(1.0)
    assert bed.finish(p).code == 128 + signal.SIGKILL


def test_a_driver_that_does_not_react_is_killed() -> None:
    p = bed.counting(*LONG)
    os.kill(driver_of(bed), signal.SIGSTOP)
    start = time.monotonic()
    done = bed.manta("kill", "latest")
    assert done.code == 0 and "did not end within 5 s" in done.err, done
    assert 4.9 < time.monotonic() - start < 15
    bed.gone(1.0)
    assert bed.finish(p).code == 128 + signal.SIGKILL


def test_a_program_that_goes_on_after_its_run() -> None:
    p = bed.counting(*LONG, "stay")
    pid = driver_of(bed)
    done = bed.manta("kill", "latest")
    assert done.code == 0 and done.out.endswith(f"; its program (pid {pid}) continues\n"), done
    assert p.poll() is None and bed.ps()[0]["state"] == "idle"
    for words in (["kill"], ["notice"]):
        done = bed.manta(*words, "latest")
        assert done.code == 1 and "is not running: it was interrupted" in done.err, done
    assert bed.manta("kill", "--now", "latest").code == 0
    assert bed.finish(p).code == 128 + signal.SIGKILL
    bed.gone(1.0)


def test_the_right_one_of_two_runs_is_killed() -> None:
    p, first = bed.counting(*LONG), bed.runs()[-1]
    q, second = bed.counting(*LONG), bed.runs()[-1]
    assert first != second and len(bed.ps()) == 2
    assert bed.manta("kill", first.name).code == 0
    assert bed.finish(p).code == 1 and q.poll() is None
    assert [r["run"] for r in bed.ps()] == [second.name]
    link = bed.root / "link"
    link.symlink_to(second)
    assert bed.manta("kill", link).code == 0  # however the path is spelled
    assert bed.finish(q).code == 1
    bed.gone(1.0)


def test_a_run_of_another_logdir_is_found_by_its_name() -> None:
    p = bed.start("run", "--logdir", bed.root / "elsewhere", COUNTER, *LONG)
    name = wait_for("the run", bed.ps)[0]["run"]
    wait_for("its first line", lambda: bed.manta("logs", name).code == 0)
    assert bed.manta("kill", name).code == 0
    assert bed.finish(p).code == 1
    bed.gone(1.0)


def test_resize_takes_effect() -> None:
    p = bed.counting(*LONG, n=1)
    done = bed.manta("resize", "latest", 3)
    assert done.code == 0 and "3 workers after its next checkpoint" in done.out, done
    wait_for("three workers", lambda: bed.status()["workers"] == 3)
    bed.wait_counting(past=bed.status()["iteration"])
    assert bed.status()["attempts"] == 2
    assert bed.manta("resize", "latest", 2).code == 0
    wait_for("two workers", lambda: bed.status()["workers"] == 2)
    assert bed.manta("kill", "latest").code == 0
    bed.finish(p)
    bed.gone(1.0)


def test_notice_ends_with_75() -> None:
    p = bed.counting(*LONG)
    done = bed.manta("notice", "latest")
    assert done.code == 0 and done.out.endswith("to save and stop\n"), done
    assert bed.finish(p).code == 75
    bed.gone(1.0)


def test_a_copy_of_a_directory_is_not_the_run() -> None:
    p = bed.counting(*LONG)
    changing = shutil.ignore_patterns("checkpoints", ".lock")
    shutil.copytree(bed.runs()[-1], bed.root / "copy", ignore=changing)
    done = bed.manta("kill", bed.root / "copy")
    assert done.code == 1 and "is not running" in done.err, done
    assert p.poll() is None and bed.manta("kill", "latest").code == 0
    bed.finish(p)
    bed.gone(1.0)


main(globals())

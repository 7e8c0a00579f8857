#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta ls and prune: which runs there are, and which may go."""

from __future__ import annotations

import os
import re
import shutil
import signal

from bed import COUNTER, Bed, Skip, driver_of, main, wait_for

bed = Bed()


def names(*found: object) -> list[str]:
    return [os.path.basename(str(f)) for f in found]


def test_nothing_is_there_yet() -> None:
    done = bed.manta("ls")
    assert done.code == 0 and not done.out and "there are no runs in" in done.err, done
    assert bed.manta("ls", "--json").json() == []
    assert bed.manta("prune", "--keep", 0).out == "0 runs, 0 B freed\n"
    for command in (("ls",), ("prune", "--keep", 0)):
        assert bed.manta(*command, bed.root / "nowhere").code == 3


def test_runs_are_listed() -> None:
    assert bed.manta("run", "-n", 2, COUNTER, 6, 2, 0).code == 0
    assert bed.manta("run", COUNTER, 6, 2, 0, "fail").code == 1
    p = bed.counting(1000000, 20, 1000)
    (bed.results / "notes").mkdir()
    head, *lines = bed.manta("ls").out.splitlines()
    assert head.split() == ["run", "state", "iteration", "best", "age", "size", "metrics"], head
    assert [line.split()[:2] for line in lines] == [
        [name, state] for name, state in zip(names(*reversed(bed.runs())),
                                             ("running", "failed", "finished"))], lines
    assert re.search(r" 6 +off 0.16667 +\d.*s? .*kB +count 6, off 0.166667$", lines[2]), lines
    running, failed, finished = bed.manta("ls", "--json").json()
    assert finished["path"] == str(bed.runs()[0]) and finished["iteration"] == 6
    assert finished["metrics"]["count"] == 6 and finished["bytes"] > 30000
    assert finished["best"] == {"metric": "off", "goal": "min", "value": 1 / 6, "iteration": 6}
    assert running["age"] == 0 <= finished["age"]
    assert bed.manta("ls", bed.results).out.split()[:7] == head.split()
    os.kill(driver_of(bed), signal.SIGKILL)
    p.wait()
    bed.gone()


def test_a_criterion_is_needed() -> None:
    done = bed.manta("prune")
    assert done.code == 2 and "prune which runs?\nhint: --keep 20" in done.err, done
    for wrong in (["--older", "30"], ["--older", "d"], ["--older", "-1d"], ["--keep", "x"],
                  ["--keep", "-1"], ["--older", "1e99w"], ["--older", "3days"]):
        done = bed.manta("prune", *wrong)
        assert done.code == 2 and wrong[0] in done.err, done
    assert len(bed.runs()) == 3


def test_a_dry_run_removes_nothing() -> None:
    before = bed.runs()
    done = bed.manta("prune", "--keep", 0, "--dry-run")
    unfinished, failed, finished = reversed(before)
    assert done.code == 0, done
    assert re.fullmatch(rf"would remove {failed.name} \(\d.* kB\)\n"
                        rf"would remove {finished.name} \(\d.* kB\)\n"
                        rf"left {unfinished.name}: it is unfinished \(--unfinished removes it\)\n"
                        rf"2 runs, \d.* kB would be freed\n", done.out), done
    assert bed.runs() == before
    said = bed.manta("prune", "--keep", 0, "--unfinished", "--dry-run", "--json").json()
    assert [r["name"] for r in said["removed"]] == names(unfinished, failed, finished)
    assert said["dry_run"] and said["left"] == [] and said["failed"] == 0
    assert said["bytes"] == sum(r["bytes"] for r in said["removed"]) > 0


def test_the_young_and_the_newest_stay() -> None:
    before = bed.runs()
    for kept in (["--older", "1d"], ["--keep", 3], ["--older", "1d", "--keep", 0],
                 ["--older", "0s", "--keep", 3]):
        assert bed.manta("prune", *kept, "--unfinished").out == "0 runs, 0 B freed\n"
    assert bed.runs() == before


def test_old_runs_go_and_nothing_else() -> None:
    finished, failed, unfinished = bed.runs()
    outside = bed.root / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (finished / "checkpoints" / "link").symlink_to(outside)
    (finished / "deep" / "er").mkdir(parents=True)
    shutil.copytree(failed, bed.root / "elsewhere", symlinks=True)
    (bed.results / "linked").symlink_to(bed.root / "elsewhere")
    done = bed.manta("prune", "--older", "0s")
    assert done.code == 0 and f"removed {finished.name} " in done.out, done
    assert "left linked: it is a link\n" in done.out and done.out.endswith(" kB freed\n"), done
    assert set(bed.runs()) == {bed.results / "linked", unfinished}
    assert not finished.exists() and not failed.exists()
    assert (outside / "precious").exists() and (bed.root / "elsewhere" / "run.log").exists()
    assert (bed.results / "notes").is_dir()
    (bed.results / "linked").unlink()


def test_a_run_that_goes_on_stays() -> None:
    p = bed.counting(1000000, 20, 1000)
    said = bed.manta("prune", "--keep", 0, "--unfinished", "--json").json()
    assert len(said["removed"]) == 1 and [r["why"] for r in said["left"]] == ["it is running"], said
    assert len(bed.runs()) == 1 and bed.status()["state"] == "running"
    os.kill(driver_of(bed), signal.SIGKILL)
    p.wait()
    bed.gone()
    wait_for("the end of its last writes", lambda: bed.status()["state"] == "interrupted")
    assert bed.manta("prune", "--keep", 0).code == 0 and len(bed.runs()) == 1
    assert bed.manta("prune", "--keep", 0, "--unfinished").code == 0 and bed.runs() == []


def test_what_cannot_be_removed_is_a_failure() -> None:
    assert bed.manta("run", COUNTER, 2, 2, 0).code == 0
    deep = bed.runs()[0] / "/".join(["d"] * 70)
    deep.mkdir(parents=True)
    done = bed.manta("prune", "--keep", 0)
    assert done.code == 1 and "nested more than 64 deep" in done.err, done
    assert bed.runs() and bed.status()["state"] == "finished"  # still a run: try again
    shutil.rmtree(bed.runs()[0] / "d")
    assert bed.manta("prune", "--keep", 0).code == 0 and bed.runs() == []


def test_runs_of_another_user_stay() -> None:
    if os.geteuid() != 0:
        raise Skip("only root can give a directory away")
    assert bed.manta("run", COUNTER, 2, 2, 0).code == 0
    run = bed.runs()[0]
    for path in (run / "run.log", run):
        os.chown(path, 65534, 65534)
        said = bed.manta("prune", "--keep", 0, "--json").json()
        assert [r["why"] for r in said["left"]] == ["it belongs to another user"], said
        os.chown(path, 0, 0)
    assert run.exists()


main(globals())

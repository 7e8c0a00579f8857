#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta resume: a run cut short at any moment goes on, and its count is exact."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

from bed import COUNTER, Bed, driver_of, main, wait_for

bed = Bed()
LONG = (1000000, 20, 1000)
SEED = int(os.environ.get("MANTA_TEST_SEED", time.time_ns() % 1000000))


def kill_driver_after(p, seconds: float) -> bool:
    """Kills the program `seconds` from now; False if it has ended before."""
    time.sleep(seconds)
    if p.poll() is not None:
        return False
    runs = bed.ps()
    if runs and runs[0]["driver"] > 0:
        os.kill(runs[0]["driver"], signal.SIGKILL)
    else:
        p.kill()
    p.wait()
    return True


def count_through_kills(workers: int, n: int, seed: int) -> dict:
    """Counts to n while the program is killed and resumed; gives what its status says then."""
    kills, rng, before = 0, random.Random(seed), len(bed.runs())
    print(f"# seed {seed}", flush=True)
    p = bed.start("run", "-n", workers, COUNTER, n, 7, 1000)
    run = wait_for("the run", lambda: bed.runs()[before:])[0]
    while kills < 8 and kill_driver_after(p, rng.uniform(0, 0.25)):
        kills += 1
        p = bed.start("resume", run.name)
    done = bed.finish(p)
    counted = ",".join([str(n)] * workers)
    assert done.code == 0 and done.out.endswith(f"counted [{counted}]\n"), done
    assert kills >= 5 and len(bed.runs()) == before + 1, kills
    bed.gone()
    return bed.status(run)


def test_killed_at_random_moments_the_count_is_exact() -> None:
    s = count_through_kills(2, 1500, SEED)
    assert s["state"] == "finished" and s["iteration"] == 1500 and s["results"] == [1500] * 2, s
    # Rank 1 goes on from rank 0's checkpoint, and so skips the rows that it was behind by.
    assert 2800 < s["rows"] <= 3000, s


def test_no_row_is_lost_or_counted_twice() -> None:
    s = count_through_kills(1, 1500, SEED + 1)
    assert s["rows"] == s["iteration"] == 1500 and s["results"] == [1500], s


def test_a_finished_run_gives_its_result_again() -> None:
    assert bed.manta("run", COUNTER, 15, 5, 0).code == 0
    runs = bed.runs()
    done = bed.manta("resume", "latest")
    assert done.code == 0 and done.json() == [15], done
    assert "has finished" in done.err and bed.runs() == runs


def test_a_running_run_is_refused() -> None:
    p = bed.counting(*LONG)
    done = bed.manta("resume", "latest")
    assert done.code == 1 and f"is still running (pid {driver_of(bed)})" in done.err, done
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 75


def test_it_goes_on_with_as_many_workers() -> None:
    p = bed.counting(*LONG)
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 75
    before = bed.status()
    assert before["workers"] == 2 and before["attempts"] == 1
    p = bed.start("resume", "latest")
    bed.wait_counting(past=before["iteration"])
    assert bed.status()["workers"] == 2 and bed.status()["attempts"] == 2
    p.send_signal(signal.SIGTERM)  # the same parent as in run
    assert bed.finish(p).code == 75
    p = bed.start("resume", "-n", 3, "latest")
    wait_for("three workers", lambda: bed.status()["workers"] == 3)
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 75
    bed.gone()


def test_a_failed_run_can_be_tried_again() -> None:
    assert bed.manta("run", COUNTER, 10, 2, 0, "fail").code == 1
    done = bed.manta("resume", "latest")
    assert done.code == 1 and "it was told to fail" in done.err, done
    assert bed.status()["attempts"] == 2


def test_the_second_run_of_a_program_is_resumed() -> None:
    before = len(bed.runs())
    p = bed.start("run", COUNTER, 100, 10, 5000, "twice")
    wait_for("the second run", lambda: len(bed.runs()) == before + 2)
    bed.wait_counting()
    os.kill(driver_of(bed), signal.SIGKILL)
    p.wait()
    first, second = bed.runs()[-2:]
    done = bed.manta("resume", second.name)
    assert done.code == 0 and done.out.count("counted [100]\n") == 2, done
    assert done.out.startswith("counted [100]\n")  # the first is not run again
    assert len(bed.runs()) == before + 2
    assert bed.status(first)["attempts"] == 1 and bed.status(second)["attempts"] == 2


def fail_in(place: Path) -> Path:
    """A run of a program of its own in a directory of its own: it failed, and can be tried
    again."""
    place.mkdir()
    shutil.copy(COUNTER, place / "mine")
    command = os.environ["MANTA_BIN"]
    assert bed.run("/bin/sh", "-c", f"cd {place} && {command} run ./mine 4 2 0 fail").code == 1
    return bed.runs()[-1]


def test_it_runs_in_its_directory_wherever_it_is_called() -> None:
    run = fail_in(bed.root / "place")
    done = bed.manta("resume", run, cwd=bed.root)
    assert "it was told to fail" in done.err and "warning" not in done.err, done


def test_another_build_is_warned_about() -> None:
    run = fail_in(bed.root / "rebuilt")
    mine = bed.root / "rebuilt" / "mine"
    data = bytearray(mine.read_bytes())
    note = data.find(b"GNU\0", data.find(b"\x03\0\0\0GNU\0"))
    assert note > 0
    data[note + 4] ^= 1  # another build id
    mine.unlink()
    mine.write_bytes(data)
    mine.chmod(0o755)
    done = bed.manta("resume", run)
    assert "mine is another build than the one that began this run" in done.err, done
    mine.unlink()
    done = bed.manta("resume", run)
    assert done.code == 3 and "cannot run" in done.err, done


def test_a_directory_that_is_gone_is_told() -> None:
    run = fail_in(bed.root / "gone")
    shutil.rmtree(bed.root / "gone")
    done = bed.manta("resume", run)
    assert done.code == 1 and "enter its working directory" in done.err, done


main(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta run: the program's environment, its end, and the signals on the way."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time

from bed import COUNTER, MANTA, Bed, driver_of, main, wait_for

bed = Bed()
LONG = (1000000, 20, 1000)


def test_a_program_trains_on_n_workers() -> None:
    done = bed.manta("run", "-n", 3, COUNTER, 5, 2, 0)
    assert done.code == 0 and done.out.endswith("counted [5,5,5]\n"), done
    assert bed.status()["workers"] == 3
    bed.gone()


def test_the_program_finds_this_command() -> None:
    told = bed.manta("run", "-n", 2, "/bin/sh", "-c", 'echo "$MANTA_BIN $MANTA_NUM_WORKERS"')
    assert told.out == f"{os.path.realpath(MANTA)} 2\n", told
    told = bed.manta("run", "/bin/sh", "-c", 'echo "$MANTA_BIN"', MANTA_BIN="/other/manta")
    assert told.out == "/other/manta\n", told


def test_logdir_is_where_runs_go() -> None:
    (bed.root / "sub").mkdir()
    done = bed.manta("run", "--logdir", "elsewhere", "/bin/sh", "-c",
                     f"cd sub && exec {COUNTER} 2 1 0")
    assert done.code == 0, done
    assert len(list((bed.root / "elsewhere").glob("counter_0001_*/run.log"))) == 1


def test_prefixes_have_colours_on_a_terminal_only() -> None:
    screen, tty = pty.openpty()
    with open(tty, "w") as out:
        done = subprocess.run([MANTA, "run", COUNTER, "2", "1", "0"], stdin=subprocess.DEVNULL,
                              stdout=out, stderr=subprocess.PIPE, cwd=bed.root, timeout=60,
                              env=bed.env | {"TERM": "xterm"})
    said = os.read(screen, 65536).decode()
    os.close(screen)
    assert done.returncode == 0, done
    assert said == ("\x1b[36m(rank 0)\x1b[0m count 1\r\n\x1b[36m(rank 0)\x1b[0m count 2\r\n"
                    "counted [2]\r\n"), said
    assert bed.manta("run", COUNTER, 1, 1, 0).out == "(rank 0) count 1\ncounted [1]\n"


def test_the_terminal_goes_to_a_rank_that_is_there() -> None:
    done = bed.manta("run", "--pdb", "x", COUNTER, 1, 1, 0)
    assert done.code == 2 and "--pdb" in done.err, done
    done = bed.run("setsid", "--wait", MANTA, "run", "--pdb", 0, COUNTER, 1, 1, 0)
    assert done.code == 1 and "MANTA_PDB=0 needs a terminal" in done.err, done


def test_the_exit_code_is_the_program_s() -> None:
    assert bed.manta("run", "/bin/sh", "-c", "exit 42").code == 42
    assert bed.manta("run", "/bin/sh", "-c", "kill -SEGV $$").code == 128 + signal.SIGSEGV
    done = bed.manta("run", COUNTER, 10, 2, 0, "fail")
    assert done.code == 1 and "it was told to fail" in done.err, done


def test_arguments_and_path_are_the_program_s() -> None:
    assert bed.manta("run", "echo", "-n", "a b").out == "a b"


def test_a_program_that_is_not_there() -> None:
    done = bed.manta("run", "./nothing")
    assert done.code == 3, done
    assert done.err == "manta: cannot run ./nothing: No such file or directory\n", done
    done = bed.manta("run", bed.root)
    assert done.code == 1 and "Permission denied" in done.err, done


def test_a_python_script_is_run_by_python() -> None:
    script = bed.root / "hello.py"
    script.write_text("import sys; print('hello', *sys.argv[1:])\n")
    assert bed.manta("run", script, "-n", "x").out == "hello -n x\n"


def test_sigterm_becomes_a_notice() -> None:
    p = bed.counting(*LONG)
    p.send_signal(signal.SIGTERM)
    done = bed.finish(p)
    assert done.code == 75, done
    assert "EPREEMPTED" in done.err and "the run was told to save and end" in done.err, done
    status = bed.status()
    assert status["state"] == "interrupted"
    assert status["checkpoint"]["iteration"] == status["iteration"], status
    bed.gone()


def test_a_run_below_a_script_is_noticed_too() -> None:
    p = bed.start("run", "/bin/sh", "-c", f"{COUNTER} 1000000 20 1000; exit $?")
    wait_for("the run", bed.ps)
    bed.wait_counting()
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 75
    bed.gone()


def test_a_second_sigterm_kills() -> None:
    p = bed.counting(*LONG, "deaf")
    p.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert p.poll() is None
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 128 + signal.SIGKILL
    bed.gone()


def test_the_grace_time_kills() -> None:
    p = bed.counting(*LONG, "deaf", MANTA_GRACE="0.7")
    start = time.monotonic()
    p.send_signal(signal.SIGTERM)
    done = bed.finish(p)
    assert done.code == 128 + signal.SIGKILL and 0.6 < time.monotonic() - start < 10, done
    assert "did not end in time" in done.err
    bed.gone()


def test_a_program_without_a_run_gets_the_sigterm() -> None:
    script = "trap 'exit 9' TERM; echo up; while :; do sleep .01; done"
    p = bed.start("run", "/bin/sh", "-c", script)
    assert p.stdout and p.stdout.readline() == "up\n"
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 9


def test_a_program_between_two_runs_gets_the_sigterm() -> None:
    p = bed.start("run", COUNTER, 5, 2, 0, "stay")
    wait_for("the end of the run", lambda: p.stdout and p.stdout.readline() == "counted [5]\n")
    wait_for("idle workers", lambda: bed.ps() and bed.ps()[0]["state"] == "idle")
    p.send_signal(signal.SIGTERM)
    assert bed.finish(p).code == 128 + signal.SIGTERM
    bed.gone()


def test_sigint_is_left_to_the_terminal() -> None:
    p = bed.counting(*LONG)
    p.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert p.poll() is None
    os.kill(driver_of(bed), signal.SIGINT)
    assert bed.finish(p).code == 128 + signal.SIGINT
    bed.gone()


def test_the_program_dies_with_the_command() -> None:
    p = bed.counting(*LONG)
    p.kill()
    p.wait()
    bed.gone()
    assert bed.status()["state"] == "interrupted"


def test_killed_while_workers_are_being_made_nothing_stays() -> None:
    for i in range(30):
        p = bed.start("run", "-n", 2, COUNTER, *LONG)
        time.sleep(0.001 * i)
        p.kill()
        p.wait()
        bed.gone()


main(globals())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manta status, logs and ps: what is seen of runs that go on, have ended or were cut short."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import termios
import time

from bed import COUNTER, MANTA, Bed, driver_of, main, wait_for

bed = Bed()
LONG = (1000000, 20, 1000)


def test_ps_of_nothing() -> None:
    done = bed.manta("ps")
    assert done.code == 0 and not done.out and done.err == "manta: nothing is running\n", done
    assert bed.ps() == []


def test_status_of_a_finished_run() -> None:
    assert bed.manta("run", "-n", 2, COUNTER, 6, 2, 0).code == 0
    done = bed.manta("status")
    lines = dict(re.findall(r"^(\w[\w ]*?)  +(.*)$", done.out, re.M))
    assert done.code == 0 and lines["state"] == "finished", done
    assert lines["workers"] == "2" and lines["iteration"] == "6" and lines["attempts"] == "1"
    table = [line.split() for line in done.out.splitlines()[-3:]]
    assert table == [["metric", "last", "best", "at", "iteration"], ["count", "6", "-", "-"],
                     ["off", "0.16667", "0.16667", "6"]], table
    newest = lines["checkpoint"]
    assert re.fullmatch(r"000003, iteration 6, 17 kB, .* ago; 3 written", newest), lines
    assert re.fullmatch(r"workers after .* ms, first row after .* ms", lines["start"]), lines
    assert "restarts" not in lines and lines["speed"].endswith("it/s"), lines
    assert lines["directory"] == str(bed.runs()[-1]) and lines["program"].endswith("6 2 0")
    assert done.out.startswith(bed.runs()[-1].name + "\n")


def test_status_in_json() -> None:
    s = bed.status()
    assert s["state"] == "finished" and s["workers"] == 2 and s["rows"] == 12 and s["lost"] == 0
    assert s["results"] == [6, 6] and s["metrics"]["count"] == 6
    assert s["best"] == {"off": {"value": 1 / 6, "iteration": 6}} and s["checkpoints"] == 3
    assert s["restarts"] == 0 == s["repeated"] and s["start"]["first_row_s"] > 0
    assert s["argv"][1:] == ["6", "2", "0"]
    assert s["checkpoint"]["iteration"] == 6 and 0 <= s["seconds"] < 60 and s["begin"] <= s["end"]


def test_status_of_a_failed_run() -> None:
    assert bed.manta("run", COUNTER, 6, 2, 0, "fail").code == 1
    assert bed.status()["state"] == "failed"
    done = bed.manta("status")
    assert re.search(r"^error +.*it was told to fail", done.out, re.M), done


def test_what_a_restart_cost_is_told() -> None:
    p = bed.counting(40, 10, 20000)
    wait_for("a checkpoint", lambda: (bed.status()["checkpoint"] or {}).get("iteration"))
    os.kill(next(w["pid"] for w in bed.ps()[0]["workers"] if w["rank"] == 1), signal.SIGKILL)
    assert p.wait(timeout=60) == 0
    s = bed.status()
    assert s["restarts"] == 1 == s["lost"] and 0 < s["restart_seconds"] < s["seconds"], s
    assert 0 <= s["repeated"] < 30, s
    done = bed.manta("status")
    assert re.search(r"^restarts +1: .* lost, \d+ iterations? done twice\n"
                     r" +after iteration \d+, .*: rank 1 .*(KILL|signal 9)", done.out, re.M), done


def test_runs_are_found_by_name_and_part() -> None:
    first, second = bed.runs()[:2]
    for what in (first, first.name, "counter_0001", "latest"):
        assert bed.manta("status", what).code == 0, what
    assert bed.status("counter_0002")["path"] == str(second)
    done = bed.manta("status", "counter")
    assert done.code == 2 and '"counter" matches 3 runs' in done.err, done
    assert first.name in done.err, done


def test_a_table_fits_the_terminal() -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 96))
    p = subprocess.Popen([MANTA, "ls"], env=bed.env | {"TERM": "dumb"}, stdout=theirs)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # what a terminal says at its end
        while piece := os.read(ours, 65536):
            said += piece
    os.close(ours)
    assert p.wait() == 0
    lines = said.decode().splitlines()
    whole = bed.manta("ls").out.splitlines()  # elsewhere nothing is cut
    assert len(lines) == len(whole) > 1 and max(map(len, whole)) > 96, whole
    assert all(len(line) <= 96 for line in lines) and lines[1].endswith("…"), lines


def test_a_plot() -> None:
    first, second = (run.name for run in bed.runs()[:2])
    done = bed.manta("plot", first, COLUMNS="70")
    assert done.code == 0 and "count" in done.out and "off" in done.out, done
    assert "█" in done.out or "▀" in done.out, done
    svg, png = bed.root / "a.svg", bed.root / "b.PNG"
    words = ("plot", f"{first},{second}", "off", "--log", "--x", "time", "--rank", "all")
    assert bed.manta(*words, "-o", svg, "--title", "A <b>").code == 0
    assert "A &lt;b&gt;" in svg.read_text() and "time (s)" in svg.read_text()
    modules = os.environ["MANTA_LIBDIR"]
    assert bed.manta(*words, "-o", png, MANTA_MODULES=modules).code == 0
    assert png.read_bytes()[1:4] == b"PNG"
    for wrong, code in ((("-o", "x.jpg"), 2), (("-o", "no/x.svg"), 1), (("off", "nix"), 3),
                        (("--x", "day"), 2), (("--rank", "-1"), 2)):
        done = bed.manta("plot", first, *wrong)
        assert done.code == code and done.err, (wrong, done)


def test_a_run_that_goes_on() -> None:
    p = bed.counting(*LONG)
    s = bed.status()
    assert s["state"] == "running" and s["pid"] == driver_of(bed), s
    table = bed.manta("ps")
    head, row = table.out.splitlines()
    assert head.split() == ["run", "driver", "workers", "attempt", "state", "age", "program"]
    assert row.split()[:5] == [bed.runs()[-1].name, str(s["pid"]), "2", "0", "running"], row
    assert row.endswith("1000000 20 1000")
    one = bed.ps()[0]
    pids = {w["pid"] for w in one["workers"]}
    assert one["path"] == str(bed.runs()[-1]) and len(pids) == 2 and one["age"] > 0
    lines = [line.split() for line in bed.manta("ps", "-v").out.splitlines()]
    assert lines[0] == ["run", "driver", "agent", "rank", "attempt", "pid", "state", "program"]
    assert [line[3:5] + line[6:7] for line in lines[1:]] == [["0", "0", "running"],
                                                             ["1", "0", "running"]]
    assert {int(line[5]) for line in lines[1:]} == pids
    for pid in (*pids, one["driver"], one["agent"]):
        os.kill(pid, 0)
    p.kill()
    p.wait()
    bed.gone()


def test_a_killed_driver_leaves_an_interrupted_run() -> None:
    done = bed.manta("status")
    name = bed.runs()[-1].name
    assert "interrupted" in done.out, done
    assert done.out.endswith(f"\nto continue: manta resume {name}\n"), done


def test_a_torn_log_is_told() -> None:
    torn = bed.root / "torn"
    shutil.copytree(bed.runs()[0], torn)
    with open(torn / "run.log", "ab") as log:
        log.write(b"mLog and no more")
    done = bed.manta("status", torn)
    assert done.code == 0 and re.search(r"^torn +16 bytes", done.out, re.M), done


def test_an_empty_log_is_no_crash() -> None:
    empty = bed.root / "empty"
    empty.mkdir()
    (empty / "run.log").touch()
    assert bed.status(empty)["state"] == "interrupted"
    assert "1970" not in bed.manta("status", empty).out
    listed = bed.manta("ls", bed.root).out  # not 20000 days old
    assert re.search(r"^empty +interrupted +0 +- +- ", listed, re.M), listed
    done = bed.manta("resume", empty)
    assert done.code == 1 and "does not say how the run began" in done.err, done


def test_a_stale_socket_is_removed() -> None:
    bed.sockets.mkdir(mode=0o700, exist_ok=True)
    stale = bed.sockets / "agent-4194000.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(stale))
    assert bed.ps() == [] and not stale.exists()


def test_a_socket_just_born_is_left_alone() -> None:
    young = bed.sockets / f"agent-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(young))
        assert bed.ps() == [] and young.exists()
    young.unlink()


def test_an_agent_that_does_not_answer_is_passed_over() -> None:
    deaf = bed.sockets / f"agent-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(deaf))
        s.listen()
        done = bed.manta("ps", "--json")
    deaf.unlink()
    assert done.code == 0 and done.out == "[]\n" and "does not answer" in done.err, done


def test_logs_of_a_rank() -> None:
    assert bed.manta("run", "-n", 2, COUNTER, 4, 2, 0).code == 0
    whole = "".join(f"count {i}\n" for i in range(1, 5))
    assert bed.manta("logs", "latest").out == whole
    assert bed.manta("logs", "latest", "--rank", 1).out == whole
    assert bed.manta("logs", "-n", 2, "latest").out == "count 3\ncount 4\n"
    assert bed.manta("logs", "-n", 0, "latest").out == ""
    assert bed.manta("logs", "-n", 99, "latest").out == whole
    both = bed.manta("logs", "latest", "--all", "-n1").out
    assert both == "(rank 0) count 4\n(rank 1) count 4\n", both


def test_the_older_log_comes_first() -> None:
    logs = bed.runs()[-1] / "logs"
    (logs / "rank-0.log.1").write_text("count -1\ncount 0\n")
    assert bed.manta("logs", "latest").out.startswith("count -1\ncount 0\ncount 1\n")
    assert bed.manta("logs", "latest", "-n", 5).out.startswith("count 0\ncount 1\n")
    assert bed.manta("logs", "latest", "-n", 4).out.startswith("count 1\n")


def test_logs_that_are_not_there() -> None:
    done = bed.manta("logs", "latest", "--rank", 7)
    assert done.code == 3 and "rank 7 of" in done.err and "has printed nothing" in done.err, done
    done = bed.manta("logs", "latest", "--rank", 0, "--all")
    assert done.code == 2 and "contradict" in done.err, done


def test_follow_ends_with_the_run() -> None:
    p = bed.counting(300, 20, 2000)
    f = bed.start("logs", "-f", "latest")
    g = bed.start("logs", "-f", "--all", "-n", 1, "latest")
    assert bed.finish(p).code == 0
    one, every = bed.finish(f), bed.finish(g)
    assert one.code == 0 and one.out == "".join(f"count {i}\n" for i in range(1, 301)), one
    assert every.out.count("(rank 0) count 300\n") == every.out.count("(rank 1) count 300\n") == 1


def test_follow_ends_when_the_driver_is_killed() -> None:
    p = bed.counting(*LONG)
    f = bed.start("logs", "-f", "latest")
    time.sleep(0.3)
    os.kill(driver_of(bed), signal.SIGKILL)
    p.wait()
    done = bed.finish(f)
    assert done.code == 0 and done.out.startswith("count 1\ncount 2\n"), done.err
    bed.gone()


def test_follow_goes_over_a_rotation() -> None:
    p = bed.counting(*LONG)
    logs = bed.runs()[-1] / "logs"
    (logs / "rank-9.log").write_text("old 1\n")
    f = bed.start("logs", "-f", "--rank", 9, "latest")
    assert f.stdout and f.stdout.readline() == "old 1\n"
    with open(logs / "rank-9.log", "a") as log:
        log.write("old 2\n")
    (logs / "rank-9.log").rename(logs / "rank-9.log.1")
    (logs / "rank-9.log").write_text("new 1\n")
    assert [f.stdout.readline() for _ in range(2)] == ["old 2\n", "new 1\n"]
    p.kill()
    p.wait()
    assert bed.finish(f).code == 0
    bed.gone()


main(globals())

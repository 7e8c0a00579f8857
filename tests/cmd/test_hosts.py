#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command shows and does of a run on several hosts, here two commands on this one."""

from __future__ import annotations

from bed import COUNTER, MANTA, Bed, main, wait_for

bed = Bed()
AGENT = f"exec {MANTA} agent --stdio"
ALL_FAR = {"MANTA_HOSTS": f"a 1 {AGENT}; b 2 {AGENT}"}
ONE_HERE = {"MANTA_HOSTS": f"here 1; b 2 {AGENT}"}
LONG = (1000000, 20, 1000)


def rows() -> list[dict]:
    """Those of this host's agent: on the same machine the far ones answer, too."""
    return [r for r in bed.manta("ps", "--json").json() if r["driver"] > 0]


def test_ps_shows_all_workers_once_at_the_driver() -> None:
    for env in (ALL_FAR, ONE_HERE):
        p = bed.counting(*LONG, n=3, **env)
        row = wait_for("three workers", lambda: next((r for r in rows() if len(r["workers"]) == 3),
                                                     None))
        assert row["state"] == "running", row
        assert sorted(w["rank"] for w in row["workers"]) == [0, 1, 2], row
        far = {w["rank"]: w["host"] for w in row["workers"] if "host" in w}
        assert far == ({0: "a", 1: "b", 2: "b"} if env is ALL_FAR else {1: "b", 2: "b"}), row
        assert bed.manta("status").code == 0
        assert bed.manta("kill", "latest").code == 0
        bed.gone(5.0)
        bed.finish(p)


def test_kill_now_ends_the_far_side() -> None:
    p = bed.counting(*LONG, n=3, **ALL_FAR)
    pid = rows()[0]["driver"]
    done = bed.manta("kill", "--now", "latest")
    assert done.code == 0 and done.out.endswith(f"and its program (pid {pid})\n"), done
    bed.gone(5.0)
    bed.finish(p)


def test_logs_of_far_ranks() -> None:
    done = bed.manta("run", "-n", 3, COUNTER, 30, 10, 100, **ALL_FAR)
    assert done.code == 0 and "counted [30,30,30]" in done.out, done
    for rank in range(3):
        lines = bed.manta("logs", "--rank", rank, "latest").out.split("\n")
        assert lines[-2] == "count 30", lines[-5:]
    assert bed.manta("ckpt", "verify", "latest").code == 0


def test_notice_and_resume() -> None:
    p = bed.counting(2000, 20, 1000, n=3, **ALL_FAR)
    assert bed.manta("notice", "latest").code == 0
    assert bed.finish(p).code == 75
    done = bed.manta("resume", "latest", **ALL_FAR)
    assert done.code == 0 and "counted [2000,2000,2000]" in done.out, done


def test_an_agent_is_nothing_for_people() -> None:
    done = bed.manta("agent")
    assert done.code == 2 and "started by a driver" in done.err, done


main(globals())

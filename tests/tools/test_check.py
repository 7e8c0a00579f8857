#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check counts every case, and no failure gets lost on the way."""

from __future__ import annotations

import json
import signal
from typing import Any

from tap import load, main

check = load("scripts/check")


def verdicts(text: str) -> list[tuple[str, str, str]]:
    return [(c.name, c.verdict, c.note) for c in check.parse_tap(text)]


def logged(result: str, stdout: str, **more: Any) -> list[tuple[str, str]]:
    entry = {"name": "unit - manta:t", "result": result, "stdout": stdout, "returncode": 0,
             "duration": 0.1}
    return [(c.name, c.verdict) for c in check.judge_logged({**entry, **more})]


def test_results_are_counted() -> None:
    text = "1..3\nok 1 - one\n# about two\nnot ok 2 - two\nok 3\nokay 4\n  ok 5 - nested\n"
    assert [v for _, v, _ in verdicts(text)] == ["passed", "failed", "passed"]


def test_skips_tell_why() -> None:
    assert verdicts("ok 1 - a # SKIP no GPU") == [("a", "skipped", "no GPU")]
    assert verdicts("# skip: no GPU\nok 1 # SKIP a") == [("a", "skipped", "no GPU")]
    assert verdicts("not ok 1 # SKIP a") == [("a", "skipped", "no reason given")]
    assert verdicts("1..0 # SKIP no MPI") == [("", "skipped", "no MPI")]


def test_a_reason_belongs_to_one_skip() -> None:
    text = "# skip: no GPU\nok 1 # SKIP a\nok 2 # SKIP b\n"
    assert [note for _, _, note in verdicts(text)] == ["no GPU", "no reason given"]


def test_bailing_out_is_a_failure() -> None:
    assert [v for _, v, _ in verdicts("ok 1 - a\nBail out! no disk\n")] == ["passed", "failed"]


def test_a_program_without_tap_is_one_case() -> None:
    assert logged("OK", "hello\n") == [("t", "passed")]
    assert logged("FAIL", "hello\n") == [("t", "failed")]
    assert logged("SKIP", "no disk\n") == [("t", "skipped")]


def test_a_crash_after_the_last_case_is_a_failure() -> None:
    for result in ("ERROR", "TIMEOUT", "FAIL"):
        got = logged(result, "1..1\nok 1 - a\n", stderr="leak\n", returncode=1)
        assert got == [("t: a", "passed"), ("t", "failed")], got


def test_a_sanitizer_that_speaks_up_elsewhere_is_a_failure() -> None:
    said = "==7==ERROR: AddressSanitizer: heap-use-after-free\n"
    got = logged("OK", "1..1\nok 1 - a\n", stderr=said)
    assert [v for _, v in got] == ["passed", "failed"], got


def test_cmockas_skips_are_no_failures() -> None:
    assert logged("FAIL", "1..2\nok 1 - a\n# skip: no GPU\nnot ok 2 # SKIP b\n") == [
        ("t: a", "passed"), ("t: b", "skipped")]
    assert logged("FAIL", "not ok 1 # SKIP b\n", returncode=1)[-1] == ("t", "failed")


def test_a_failed_case_is_not_counted_twice() -> None:
    assert logged("FAIL", "1..1\nnot ok 1 - a\n") == [("t: a", "failed")]


def test_output_is_cut_to_its_end() -> None:
    text = "".join(f"line {i}\n" for i in range(1000)) + "ok 1 - fine\nthe cause\n"
    shown = check.failing_lines(text).splitlines()
    assert len(shown) == check.SHOWN_LINES + 1 and shown[-1] == "the cause"
    assert "ok 1" not in "".join(shown)


def test_cases_of_pytest() -> None:
    lines = [{"name": "a", "verdict": "passed", "note": ""},
             {"name": "b", "verdict": "skipped", "note": "no GPU"},
             {"name": "c", "verdict": "failed", "note": "why"}]
    cases = check.read_cases("".join(json.dumps(line) + "\n" for line in lines))
    assert check.Tally(cases).line() == "1 passed, 1 failed, 1 skipped"
    assert [c.note for c in cases] == ["", "no GPU", "why"]


def test_a_test_that_fails_in_its_end_has_not_passed() -> None:
    lines = [{"name": "a", "verdict": v, "note": "why"} for v in ("passed", "failed")]
    cases = check.read_cases("".join(json.dumps(line) + "\n" for line in lines))
    assert check.Tally(cases).line() == "0 passed, 1 failed, 0 skipped"


def test_commands_end() -> None:
    done = check.run(["sh", "-c", "echo said; exit 3"])
    assert (done.code, done.text) == (3, "said\n"), done
    work = check.Command(["sleep", "1000"])
    work.end()
    assert work.process.returncode == -signal.SIGTERM
    work.end()  # again does no harm


def test_a_command_that_does_not_end() -> None:
    """Nor is what it leaves behind waited for."""
    limits = check.COMMAND_LIMIT_S, check.ENDING_S
    check.COMMAND_LIMIT_S, check.ENDING_S = 0.5, 0.5
    try:
        done = check.run(["sh", "-c", "trap '' TERM; setsid sleep 20 & echo said; sleep 20"])
    finally:
        check.COMMAND_LIMIT_S, check.ENDING_S = limits
    assert done.code == 124, done
    assert done.text.startswith("said\n") and "still running after 0.5 s" in done.text, done


def test_the_sum() -> None:
    cases = check.parse_tap("ok 1 - a\nok 2 - b\nnot ok 3 - c\nok 4 - d # SKIP e\n")
    assert check.Tally(cases).line() == "2 passed, 1 failed, 1 skipped"


main(globals())

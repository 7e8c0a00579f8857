#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The completion of bash, sourced and asked."""

from __future__ import annotations

import re
import shlex

from bed import COUNTER, ROOT, Bed, main

bed = Bed()
ASK = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_manta
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(*words: str) -> list[str]:
    """What is offered for the last of the words, behind manta."""
    text = ASK.format(script=ROOT / "completions/manta.bash",
                      words=" ".join(shlex.quote(w) for w in ("manta", *words)))
    done = bed.run("bash", "--norc", "-u", "-c", text)
    assert done.code == 0 and not done.err, done
    return done.out.split()


def commands() -> list[str]:
    return re.findall(r"^  (\w+)  +\S", bed.manta("help").out, re.M)


def test_every_command_is_offered() -> None:
    assert complete("") == [*commands(), "--help", "--version"]
    assert complete("st") == ["status"] and complete("re") == ["resume", "resize"]
    assert complete("help", "ck") == ["ckpt"]


def test_exactly_the_options_of_the_help_are_offered() -> None:
    for name in commands():
        help_text = bed.manta(name, "--help").out.split("options:")[1]
        pairs = re.findall(r"^ +(?:(-\w), )?(--[a-z-]+)", help_text, re.M)
        options = {o for pair in pairs for o in pair if o}
        assert set(complete(name, "-")) == options, (name, complete(name, "-"), options)


def test_runs_are_offered() -> None:
    assert complete("status", "") == ["latest"]
    assert bed.manta("run", COUNTER, 4, 2, 0).code == 0
    name = bed.runs()[0].name
    for command in ("status", "logs", "resume", "kill", "resize", "notice"):
        assert complete(command, "") == ["latest", name], command
        assert complete(command, name, "") == []
    (bed.runs()[0].parent / "tuned" / "experiment").mkdir(parents=True)
    (bed.runs()[0].parent / "tuned" / "experiment" / "run.log").touch()
    assert complete("status", "") == ["latest", name, "tuned"]
    assert complete("logs", "--rank", "1", "-f", "cou") == [name]
    assert complete("logs", "--rank", "") == []


def test_checkpoints_are_offered() -> None:
    name = bed.runs()[0].name
    assert complete("ckpt", "") == ["ls", "show", "verify", "export"]
    assert complete("ckpt", "show", "cou") == [name]
    assert complete("ckpt", "show", name, "") == ["newest", "best", "000001", "000002"]
    assert complete("ckpt", "export", "--to", "x", name, "b") == ["best"]


def test_what_can_be_measured_is_offered() -> None:
    assert complete("bench", "") == ["comm"] and complete("bench", "comm", "") == []
    assert complete("bench", "comm", "--op", "allg") == ["allgather"]
    assert complete("bench", "--type", "b") == ["bf16"]
    assert complete("bench", "comm", "--to", "") == complete("bench", "comm", "-n", "") == []
    usage = bed.manta("bench", "comm", "--op", "none").err
    for op in complete("bench", "comm", "--op", ""):
        assert f" {op}" in usage, op


def test_files_are_offered() -> None:
    (bed.root / "some-program").touch()
    (bed.root / "some-dir").mkdir()
    assert "some-program" in complete("run", "./x", "some-")
    assert complete("run", "--logdir", "some-") == ["some-dir"]
    assert complete("ckpt", "export", "--to", "some-p") == ["some-program"]
    assert complete("ls", "some-") == complete("prune", "--keep", "2", "some-") == ["some-dir"]
    assert complete("prune", "--older", "") == []
    assert "bash" in complete("run", "-n", "2", "bash")


main(globals())

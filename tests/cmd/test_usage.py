#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command says about itself, and about a command line that is wrong."""

from __future__ import annotations

import os
import pty
import re
import select

from bed import COUNTER, MANTA, ROOT, Bed, main

bed = Bed()
COMMANDS = ["run", "resume", "status", "logs", "ps", "ls", "plot", "dashboard", "prune", "kill",
            "resize", "notice", "ckpt", "sink", "mlflow", "upload", "download", "tune", "agent",
            "bench", "info", "doctor", "version", "help"]


def test_help_lists_every_command() -> None:
    done = bed.manta("help")
    listed = re.findall(r"^  (\w+)  +\S", done.out, re.M)
    assert done.code == 0 and listed == COMMANDS, done
    assert bed.manta("--help").out == bed.manta("-h").out == done.out
    assert "75" in done.out and "128+n" in done.out


def test_nothing_is_wrong_usage() -> None:
    done = bed.manta()
    assert done.code == 2 and done.out.startswith("usage: manta COMMAND"), done


def test_each_command_has_help() -> None:
    for name in COMMANDS:
        asked = bed.manta(name, "--help")
        assert asked.code == 0 and asked.out.startswith(f"usage: manta {name}"), asked
        assert "-h, --help" in asked.out and not asked.err
        assert bed.manta("help", name).out == asked.out


def test_help_of_a_program_is_its_own() -> None:
    assert bed.manta("run", "/bin/echo", "--help").out == "--help\n" or \
        "echo" in bed.manta("run", "/bin/echo", "--help").out
    assert bed.manta("run", "--", "/bin/echo", "-n", "x").out == "x"


def test_version_is_the_header_s() -> None:
    header = (ROOT / "include/manta/manta.h").read_text()
    version = re.search(r'MANTA_VERSION +"(.*)"', header)
    assert version and bed.manta("version").out == f"manta {version.group(1)}\n"
    assert bed.manta("--version").out == bed.manta("version").out


def test_a_typing_error_gets_a_suggestion() -> None:
    for wrong, right in {"stauts": "status", "rn": "run", "log": "logs", "stop": "kill",
                         "cktp": "ckpt", "list": "ls", "rm": "prune"}.items():
        done = bed.manta(wrong)
        assert done.code == 2 and not done.out
        assert done.err == f'manta: there is no command "{wrong}"; did you mean "{right}"?\n', done


def test_an_unknown_word_gets_a_hint() -> None:
    for words in (["frobnicate"], ["help", "frobnicate"]):
        done = bed.manta(*words)
        assert done.code == 2 and done.err.endswith("\nhint: manta help\n"), done


def test_wrong_options_are_named() -> None:
    for words, said in {("status", "--jsn"): "unknown option --jsn",
                        ("ps", "-z"): "unknown option -z",
                        ("logs", "x", "--rank"): "option --rank needs an argument",
                        ("logs", "x", "-n"): "option -n needs an argument",
                        ("ps", "extra"): 'manta ps does not take "extra"',
                        ("kill",): "manta kill needs RUN",
                        ("resize", "x"): "manta resize needs RUN N",
                        ("run",): "manta run needs PROGRAM [ARGUMENT...]"}.items():
        done = bed.manta(*words)
        assert done.code == 2, done
        assert done.err == f"manta: {said}\nhint: manta {words[0]} --help\n", done


def test_wrong_numbers_are_named() -> None:
    for words, said in {("run", "-n", "0", COUNTER): "-n must be a number from 1 to 4096",
                        ("run", "-n", "two", COUNTER): 'not "two"',
                        ("resize", "x", "5000"): "the number of workers must be a number from 1",
                        ("bench", "disk"): 'manta bench has no "disk"',
                        ("bench", "comm", "--op", "x"): "--op must be one of allreduce reduce",
                        ("bench", "comm", "--type", "bool"): "--type must be f32",
                        ("bench", "comm", "--from", "4X"): '--from must be a size such as 4, 64K',
                        ("bench", "comm", "--to", "0"): "--to must be a size",
                        ("bench", "comm", "--from", "8", "--to", "4"): "--from is more than --to",
                        ("bench", "comm", "-n", "65"): "-n must be a number from 1 to 64",
                        ("ckpt", "rm", "x"): 'manta ckpt has no "rm"',
                        ("tune", "rm", "x"): 'manta tune has no "rm"'}.items():
        done = bed.manta(*words)
        assert done.code == 2 and said in done.err, done


def test_wrong_variables_are_named() -> None:
    said = ('manta: MANTA_GROW_AFTER must be a number of seconds from 0 to 1000000000, '
            'not "abc"\n')
    for words in (["ls"], ["ps"], ["kill", "x"], ["run", COUNTER, 1, 1, 0], ["status", "x"]):
        done = bed.manta(*words, MANTA_GROW_AFTER="abc")
        assert done.code == 2 and done.err == said and not done.out, done
    assert not bed.runs()
    done = bed.manta("run", "/bin/echo", "x", MANTA_GRACE="1 minute")
    assert done.code == 2 and 'seconds from 0 to 1000000000, not "1 minute"' in done.err, done


def test_help_needs_no_right_variables() -> None:
    for words in (["help"], ["version"], ["ls", "--help"], ["--version"]):
        done = bed.manta(*words, MANTA_GROW_AFTER="abc", MANTA_RESULT="x")
        assert done.code == 0 and done.out and not done.err, done


def test_a_typing_error_in_a_variable_is_told_once() -> None:
    said = "unknown environment variable MANTA_RESULT; did you mean MANTA_RESULTS?\n"
    done = bed.manta("ps", "--json", MANTA_RESULT="x", MANTA_TEST_X="y", MANTA_ELSEWHERE="z")
    assert done.code == 0 and done.err == f"manta: warn: {said}", done
    done = bed.manta("run", COUNTER, 1, 1, 0, MANTA_RESULT="x",  # the program tells it
                     MANTA_RESULTS=str(bed.root / "other"))
    assert done.code == 0 and done.err.count(said) == 1, done
    assert bed.manta("run", "/bin/true", MANTA_RESULT="x").err == ""


def test_no_run_is_exit_code_3() -> None:
    for words in (["status"], ["status", "x"], ["logs", "x"], ["kill", "x"], ["resume", "x"],
                  ["resize", "x", "2"], ["notice", "x"], ["ckpt", "ls", "x"], ["logs", "./x"]):
        done = bed.manta(*words)
        assert done.code == 3 and done.err.startswith("manta: ") and not done.out, done


def test_doctor_speaks_json() -> None:
    rows = bed.manta("doctor", "--json").json()
    assert len(rows) > 10 and {"check", "state", "text"} == set(rows[0])


def test_a_full_disk_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        import subprocess
        done = subprocess.run([MANTA, "help"], env=bed.env, stdout=full, stderr=subprocess.PIPE,
                              text=True)
    assert done.returncode == 1 and "No space left" in done.stderr, done


def on_terminal(**env: str) -> bytes:
    """What the command prints to a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(MANTA, ["manta", "status"], bed.env | {"TERM": "xterm"} | env)
    text = b""
    while select.select([fd], [], [], 30)[0]:
        try:
            text += os.read(fd, 4096)
        except OSError:
            break
    os.waitpid(pid, 0)
    return text


def test_colours_are_for_terminals_that_want_them() -> None:
    assert bed.manta("run", COUNTER, 2, 1, 0).code == 0
    assert "\033" not in bed.manta("status", TERM="xterm").out
    assert b"\033[32mfinished\033[0m" in on_terminal()
    assert b"\033" not in on_terminal(NO_COLOR="1")
    assert b"\033" not in on_terminal(TERM="dumb")


main(globals())

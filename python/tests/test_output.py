# SPDX-License-Identifier: Apache-2.0
"""What workers print, log and ask, where the driver has a terminal and where it has none."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from manta import _command, sgd
from manta._runtime import logs
from manta.sgd import Trainer

BEGIN = """
import logging, os, signal, sys, time, warnings
from manta import sgd
from manta.sgd import Trainer
"""

BAR = """
def train():
    for i in range(101):
        sys.stderr.write(f"\\rbar {sgd.world_rank()}: {i:3}%")
        sys.stderr.flush()
        if i == 50:
            print("half of", sgd.world_rank())
        time.sleep(0.003)
    sys.stderr.write("\\n")
    print("to stdout")
    print("to stderr", file=sys.stderr)
    print("last word", end="")
"""


class Screen:
    """What somebody sees of it: enough of a terminal for what we write."""

    def __init__(self, text: str):
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.kept = (0, 0)
        for part in re.findall(r"\x1b\[[0-9;?]*[@-~]|\x1b[D78]|[^\x1b]", text):
            self._put(part)

    def _put(self, part: str) -> None:
        if part == "\r":
            self.column = 0
        elif part in ("\n", "\x1bD", "\x1b[B"):
            self.row += 1
            self.rows += [[]] * (self.row == len(self.rows))
        elif part == "\x1b7":
            self.kept = self.row, self.column
        elif part == "\x1b8":
            self.row, self.column = self.kept
        elif part[0] == "\x1b":
            if part[-1] == "A":
                self.row = max(0, self.row - int(part[2:-1] or 1))
            elif part[-1] in "KJ":
                self.rows[self.row] = self.rows[self.row][:self.column]
                if part[-1] == "J":
                    del self.rows[self.row + 1:]
        else:
            row = self.rows[self.row]
            row += [" "] * (self.column + 1 - len(row))
            row[self.column] = part
            self.column += 1

    def lines(self) -> list[str]:
        return [text for row in self.rows if (text := "".join(row).rstrip())]


class Terminal:
    """A program with a terminal of its own: a session, and its streams unless they are given."""

    def __init__(self, argv: list[str], env: dict[str, str], **streams: Any):
        self.fd, tty = pty.openpty()
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        self.text = ""
        self._taken = 0
        self.process = subprocess.Popen(
            argv, env=env, start_new_session=True, **{"stdin": tty, "stdout": tty, "stderr": tty,
                                                      **streams},
            preexec_fn=lambda: fcntl.ioctl(tty, termios.TIOCSCTTY, 0))
        os.close(tty)

    def _read(self) -> bool:
        if not select.select([self.fd], [], [], 20)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # all are gone
            return False
        self.text += data.decode()
        return bool(data)

    def until(self, what: str) -> None:
        while what not in self.text[self._taken:]:
            assert self._read(), f"no {what!r} in {self.text!r}"
        self._taken = self.text.index(what, self._taken) + len(what)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        os.close(self.fd)
        return self.process.wait(30)


def _script(tmp_path: Path, body: str) -> tuple[list[str], dict[str, str]]:
    path = tmp_path / "script.py"
    path.write_text(BEGIN + textwrap.dedent(body))
    env = {**os.environ, "MANTA_RESULTS": str(tmp_path / "runs"), "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    return [sys.executable, str(path)], env


def _log(tmp_path: Path, rank: int = 0) -> str:
    run, = (tmp_path / "runs").iterdir()
    return (run / "logs" / f"rank-{rank}.log").read_text()


# --- streams --------------------------------------------------------------------------------------


def test_streams_stay_apart_and_a_bar_is_one_line(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, BAR + "Trainer(None, num_workers=1).run(train)\n")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(rank 0) half of 0", "(rank 0) to stdout",
                                        "(rank 0) last word"]
    assert done.stderr.splitlines() == ["(rank 0) bar 0: 100%", "(rank 0) to stderr"]
    assert sorted(_log(tmp_path).splitlines()) == ["bar 0: 100%", "half of 0", "last word",
                                                   "to stderr", "to stdout"]


def test_bars_of_several_ranks_move_in_place_on_a_terminal(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, BAR + """
with Trainer(None, num_workers=2, show_all_output=True) as t:
    t.run(train)
""")
    terminal = Terminal(argv, env)
    assert terminal.end() == 0, terminal.text
    assert len(re.findall(r"bar 0: +\d+%", terminal.text)) > 2, "it does not move"
    assert "\x1b[36m(rank 0)\x1b[0m" in terminal.text and "\x1b[32m(rank 1)" in terminal.text
    for rank in range(2):
        lines = [line for line in Screen(terminal.text).lines() if f"(rank {rank}) " in line]
        assert sorted(lines) == [f"(rank {rank}) {word}" for word in sorted(
            [f"half of {rank}", f"bar {rank}: 100%", "to stdout", "to stderr", "last word"])]


@pytest.mark.parametrize("given", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_streams_are_judged_one_by_one(tmp_path: Path, given: dict[str, str]) -> None:
    argv, env = _script(tmp_path, BAR + "Trainer(None, num_workers=1).run(train)\n")
    with open(tmp_path / "out", "w") as out:
        terminal = Terminal(argv, {**env, **given}, stdout=out)
        assert terminal.end() == 0, terminal.text
    assert "\x1b[36m" not in terminal.text and terminal.text.count("\r(rank 0) bar") > 2
    assert Screen(terminal.text).lines() == ["(rank 0) bar 0: 100%", "(rank 0) to stderr"]
    assert (tmp_path / "out").read_text().splitlines() == [
        "(rank 0) half of 0", "(rank 0) to stdout", "(rank 0) last word"]


def test_the_drivers_own_lines_do_not_end_in_a_bar(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, """
def train():
    for i in range(20):
        sys.stderr.write(f"\\r{i} of 20")
        sys.stderr.flush()
        sgd.report(i=i)
        time.sleep(0.01)

with Trainer(None, num_workers=1) as t:
    for row in t.run_generator(train):
        print("row", row["i"], flush=True)
""")
    terminal = Terminal(argv, env)
    assert terminal.end() == 0, terminal.text
    assert Screen(terminal.text).lines() == [*(f"row {i}" for i in range(20)),
                                             "(rank 0) 19 of 20"]


def test_nested_bars_of_tqdm(tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    argv, env = _script(tmp_path, """
def train():
    from tqdm import tqdm
    for epoch in tqdm(range(3), desc="epoch"):
        for step in tqdm(range(20), desc="step", leave=False, mininterval=0):
            time.sleep(0.002)
    print("done")

Trainer(None, num_workers=1).run(train)
""")
    terminal = Terminal(argv, env)
    assert terminal.end() == 0, terminal.text
    assert len(re.findall(r"step: +\d+%", terminal.text)) > 2
    lines = Screen(terminal.text).lines()
    assert [line[:20] for line in lines] == ["(rank 0) epoch: 100%", "(rank 0) done"], lines
    assert [line[:11] for line in _log(tmp_path).splitlines()] == ["epoch: 100%", "done"]


def test_words_before_a_sudden_end(tmp_path: Path) -> None:
    def train() -> None:
        print("words", end="", flush=True)
        if sgd.world_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)

    with Trainer(None, num_workers=1, max_retries=0, logdir=tmp_path) as t:
        with pytest.raises(RuntimeError, match="its last output:\nwords"):
            t.run(train)
        assert t.latest_run_dir
        assert (t.latest_run_dir / "logs" / "rank-0.log").read_text() == "words\n"


# --- questions ------------------------------------------------------------------------------------

ASKS = """
def train():
    x = 42
    breakpoint()
    print("hello", input("name? "), sys.stdin.isatty())
    print("here", file=sys.stderr)

with Trainer(None, num_workers=2, step_timeout=0.2) as t:
    t.run(train if t.num_workers == 2 else None)
    t.execute(lambda: print("piped", sys.stdout.isatty()))
"""


def test_a_rank_that_has_the_terminal(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, ASKS.replace("    breakpoint()", """
    if sgd.world_rank() == 0:
        return
    breakpoint()"""))
    terminal = Terminal([_command.path(), "run", "--pdb", "1", argv[1]],
                        {**env, "MANTA_PYTHON": sys.executable})
    terminal.until("(Pdb) ")
    time.sleep(0.6)  # three times the step timeout
    terminal.type("p 'x is', x\n")
    terminal.until("('x is', 42)")
    terminal.type("c\n")
    terminal.until("name? ")
    terminal.type("bob\n")
    assert terminal.end() == 0, terminal.text
    assert "hello bob True" in terminal.text and "here" in terminal.text
    assert "(rank 0)\x1b[0m piped False" in terminal.text  # the next job has pipes again


@pytest.mark.parametrize("ask", ["breakpoint()", "__import__('pdb').set_trace()", "input()"])
def test_a_rank_without_a_terminal_says_how_to_get_one(tmp_path: Path, ask: str) -> None:
    def train() -> None:
        eval(ask)

    with Trainer(None, num_workers=1, logdir=tmp_path) as t:
        with pytest.raises(EOFError if ask == "input()" else RuntimeError) as e:
            t.run(train)
    assert "manta run --pdb 0 SCRIPT" in str(e.value)


@pytest.mark.parametrize("rank, why", [("0", "needs a terminal"), ("one", "from 0 to 4095"),
                                       ("2", "has ranks 0 to 1")])
def test_a_terminal_that_cannot_be_given(tmp_path: Path, rank: str, why: str) -> None:
    argv, env = _script(tmp_path, ASKS)
    done = subprocess.run(argv, env={**env, "MANTA_PDB": rank}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=50, start_new_session=True)
    assert done.returncode == 1 and why in done.stderr, done.stderr


# --- logging --------------------------------------------------------------------------------------


def test_levels_and_the_roots_handler_reach_the_workers(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, """
def train():
    logging.info("seen")
    logging.getLogger("a.b").debug("seen too")
    logging.getLogger("c").info("not seen")
    logging.debug("not seen")

logging.basicConfig(level=logging.INFO, format="{levelname} {name}: {message}", style="{")
logging.getLogger("a").setLevel(logging.DEBUG)
logging.getLogger("c").setLevel(logging.ERROR)
t = Trainer(None, num_workers=1)
t.run(train)
logging.getLogger("a").setLevel(logging.WARNING)
t.run(train)
""")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["(rank 0) INFO root: seen", "(rank 0) DEBUG a.b: seen too",
                                        "(rank 0) INFO root: seen"]


def test_handlers_of_other_kinds_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Mine(logging.StreamHandler):  # type: ignore[type-arg]
        pass

    to_file = logging.FileHandler(tmp_path / "file")
    odd = logging.StreamHandler(sys.stderr)
    odd.setFormatter(type("Odd", (logging.Formatter,), {})())
    plain = logging.StreamHandler(sys.stdout)
    monkeypatch.setattr(logging.root, "handlers", [to_file, Mine(sys.stderr), odd, plain])
    setup = logs.describe()
    to_file.close()
    assert setup and setup[3] == [(1, 0, None)]


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sig, says", [
    (signal.SIGINT, "interrupted: ending the run without a last save"),
    (signal.SIGTERM, "asked to stop: the ranks are to save and return")])
def test_one_line_says_what_a_signal_does(tmp_path: Path, sig: signal.Signals, says: str) -> None:
    argv, env = _script(tmp_path, """
def train():
    for i in range(10**6):
        sgd.report(i=i)
        if i == 4:
            sgd.save_checkpoint(i=i)
            print("saved", flush=True)
        if sgd.preempted():
            return
        time.sleep(0.01)

Trainer(None, num_workers=1).run(train)
""")
    driver = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    assert driver.stdout and driver.stdout.readline() == "(rank 0) saved\n"
    driver.send_signal(sig)
    error = driver.communicate(timeout=40)[1]
    line, = (line for line in error.splitlines() if says in line)
    run, = (tmp_path / "runs").iterdir()
    assert line == (f"manta: {says}; newest checkpoint: iteration 5; `manta resume {run}` "
                    f"continues from it")

# SPDX-License-Identifier: Apache-2.0
"""The progress of a run on a terminal, off one, and in a notebook."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_output import Screen, Terminal, _script

from manta import sgd
from manta.sgd import ProgressCallback, Trainer
from manta.train import RunConfig

TRAIN = """
from manta.sgd import ProgressCallback, SGDCallback

def train():
    for i in range(1, 41):
        time.sleep(0.01)
        sgd.report(loss=(1 + sgd.world_rank()) / i, epoch=i)
        if i % 10 == 0:
            sgd.save_checkpoint(i=i)
"""


def test_a_block_changes_in_place_and_leaves_the_programs_own_lines(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, TRAIN + """
with Trainer(None, num_workers=2, callbacks=[ProgressCallback()]) as t:
    for reports in t.run_iterator(train):
        print("seen", reports[0]["epoch"])
        sys.stderr.write("half a line " if reports[0]["epoch"] == 20 else "")
""")
    terminal = Terminal(argv, env)
    assert terminal.end() == 0, terminal.text
    assert len(re.findall(r"running.{0,9} [0-9.]+s: iteration", terminal.text)) > 2, "it stays"
    lines = Screen(terminal.text).lines()
    seen = [f"seen {i}" for i in range(1, 41)]
    seen[20] = "half a line seen 21"
    assert lines[:40] == seen, lines
    assert re.fullmatch(r"\w+_0001_\S+ finished .*s: iteration 40, .*", lines[40]), lines
    assert re.fullmatch(r"  loss +0.025  best 0.025 at 40  mean 0.0375, .*", lines[41]), lines
    assert lines[-1].startswith("checkpoint: iteration 40, ") and len(lines) == 44, lines


def test_a_bar_of_the_drivers_own_stays_whole(tmp_path: Path) -> None:
    argv, env = _script(tmp_path, TRAIN + """
with Trainer(None, num_workers=1, callbacks=[ProgressCallback()]) as t:
    for reports in t.run_iterator(train):
        sys.stderr.write(f"\\rbar {reports[0]['epoch']}")
    sys.stderr.write("\\n")
""")
    terminal = Terminal(argv, env)
    assert terminal.end() == 0, terminal.text
    bars = [line for line in Screen(terminal.text).lines() if line.startswith("bar")]
    assert len(bars) == 1 and bars[0].startswith("bar 40"), bars


@pytest.mark.parametrize("given", [{}, {"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_lines_where_there_is_no_terminal(tmp_path: Path, given: dict[str, str]) -> None:
    argv, env = _script(tmp_path, TRAIN.replace("0.01", "0.03") + """
with Trainer(None, num_workers=2) as t:
    t.run(train)
print("to stdout")
""")
    env |= {"MANTA_VERBOSE": "2", **given}
    if given:
        terminal = Terminal(argv, env)
        assert terminal.end() == 0, terminal.text
        colours = re.findall(r"\x1b\[\d*m", terminal.text)
        assert set(colours) <= {"\x1b[0m"}, colours
        assert ("\x1b7" in terminal.text) == ("TERM" not in given), terminal.text
        err = terminal.text
    else:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0 and done.stdout == "to stdout\n", done
        assert "\x1b" not in done.stderr and "\r" not in done.stderr, done.stderr
        err = done.stderr
        assert 1 <= len(re.findall(r"^manta: .*: iteration \d+, .* it/s, loss", err, re.M)) <= 2
    assert re.search(r"loss +0.025  best 0.025 at 40  ranks 0.025 0.05", err), err
    assert re.search(r"start: workers after \d+ ms, first row after \d+ ms", err), err


def test_nothing_is_shown_unless_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> None:
        sgd.report(loss=1)

    monkeypatch.setenv("MANTA_VERBOSE", "1")
    with Trainer(None, num_workers=1, logdir=tmp_path) as t:
        t.run(train, callbacks=[ProgressCallback(0)])
        assert capfd.readouterr() == ("", "")
        t.run(train)
        assert "finished" in capfd.readouterr().err
    with Trainer(None, num_workers=1, logdir=tmp_path, quiet=True) as t:
        t.run(train)
        assert capfd.readouterr() == ("", "")


def test_a_run_config_asks_for_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from manta.train import DataParallelTrainer, report

    def train() -> None:
        report({"loss": 1})

    for verbose, shown in ((0, False), (None, False), (3, True)):
        DataParallelTrainer(train, run_config=RunConfig(verbose=verbose,
                                                        storage_path=str(tmp_path))).fit()
        assert ("finished" in capfd.readouterr().err) == shown, verbose


@pytest.mark.parametrize("wrong", [3, -1, True, "1", None])
def test_a_wrong_verbosity_is_an_error(wrong: Any) -> None:
    with pytest.raises(ValueError, match="verbose must be 0, 1 or 2"):
        ProgressCallback(wrong)


def test_callbacks_without_rows_are_told_begin_and_end(tmp_path: Path) -> None:
    told = []

    class Ends(sgd.SGDCallback):
        def start_training(self, **info: Any) -> None:
            told.append(os.path.isdir(info["logdir"]))

        def finish_training(self, error: bool = False, **info: Any) -> None:
            told.append(error)

    with Trainer(None, num_workers=1, logdir=tmp_path) as t:
        t.run(lambda: sgd.report(a=1), callbacks=[Ends()])
        with pytest.raises(ZeroDivisionError):
            t.run(lambda: 1 / 0, callbacks=[Ends()])
    assert told == [True, False, True, True]

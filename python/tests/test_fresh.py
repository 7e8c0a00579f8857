# SPDX-License-Identifier: Apache-2.0
"""Every call of a train function begins in a fresh process, unless workers are kept."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manta import _manta, sgd
from manta.sgd import Backend, BackendConfig, Trainer, WorkerGroup


def leave_traces() -> tuple[int, list[str]]:
    """What calls before this one have left in the process: pid, traces."""
    traces: list[str] = getattr(sys, "_traces", [])
    sys._traces = traces + ["a run"]  # type: ignore[attr-defined]
    return os.getpid(), traces


def call(trainer: Any) -> None:
    """Leaves a trace that is not a train function's."""
    def execute() -> None:
        sys._traces = getattr(sys, "_traces", []) + ["a call"]  # type: ignore[attr-defined]
    trainer.execute(execute)


def test_a_second_run_finds_nothing_of_the_first(tmp_path: Path) -> None:
    with Trainer(None, num_workers=2, logdir=tmp_path) as trainer:
        call(trainer)
        before = trainer.execute(os.getpid)
        runs = [trainer.run(leave_traces) for _ in range(3)]
        assert [pid for pid, _ in runs[0]] == before, "what execute did before the first run stays"
        assert [traces for run in runs for _, traces in run] == [["a call"]] * 2 + [[]] * 4
        assert len({pid for run in runs for pid, _ in run}) == 6


def test_workers_are_kept_if_asked(tmp_path: Path) -> None:
    with Trainer(None, num_workers=2, logdir=tmp_path, keep_workers=True) as trainer:
        runs = [trainer.run(leave_traces) for _ in range(3)]
    assert runs[2][0] == (runs[0][0][0], ["a run"] * 2)
    assert [[p for p, _ in run] for run in runs] == [[p for p, _ in runs[0]]] * 3


def test_a_revived_run_has_fresh_processes(tmp_path: Path) -> None:
    def train() -> tuple[int, list[str], list[str]]:
        saved = sgd.load_checkpoint()
        was = leave_traces()[1]
        if saved is None:
            sgd.save_checkpoint(pids=[os.getpid()])
            _manta.comm().barrier()  # rank 0 has saved
            if sgd.world_rank() == 1:
                Path(tmp_path, "fired").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                sgd.report(x=1)
        return os.getpid(), was, saved["pids"]
    with Trainer(None, num_workers=(2, 2), logdir=tmp_path, quiet=True) as trainer:
        results = trainer.run(train)
    assert Path(tmp_path, "fired").exists()
    assert [was for _, was, _ in results] == [[], []]
    assert results[0][0] != results[0][2][0]


def test_an_edited_module_is_imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(tmp_path, "edited_here.py").write_text("def train(): return 'old'\n")
    module = importlib.import_module("edited_here")
    with Trainer(None, num_workers=1, logdir=tmp_path) as trainer:
        assert trainer.run(module.train) == ["old"]
        Path(tmp_path, "edited_here.py").write_text("def train(): return 'newer'\n")
        importlib.reload(module)
        assert trainer.run(module.train) == ["newer"]


class Told(Backend):
    def on_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        def tell() -> None:
            sys._traces = getattr(sys, "_traces", []) + ["told"]  # type: ignore[attr-defined]
        worker_group.execute(tell)


class TellConfig(BackendConfig):
    @property
    def backend_cls(self) -> type[Backend]:
        return Told


def test_later_processes_get_hook_and_on_start_again(tmp_path: Path) -> None:
    def hook() -> None:
        sys._traces = getattr(sys, "_traces", []) + ["hook"]  # type: ignore[attr-defined]
    with Trainer(TellConfig(), num_workers=2, logdir=tmp_path) as trainer:
        trainer.start(hook)
        call(trainer)
        assert [t for _, t in trainer.run(leave_traces)] == [["hook", "told", "a call"]] * 2
        assert [t for _, t in trainer.run(leave_traces)] == [["hook", "told"]] * 2


def test_what_a_hook_does_to_the_environment_stays(tmp_path: Path) -> None:
    """Every call begins with that of the driver, and with what the hook of its process did to
    it."""
    def hook() -> None:
        os.environ["OF_THE_HOOK"] = "set"
        del os.environ["PATH"]

    def look() -> tuple[str | None, bool]:
        return os.environ.get("OF_THE_HOOK"), "PATH" in os.environ

    with Trainer(None, num_workers=2, logdir=tmp_path, keep_workers=True) as trainer:
        assert trainer.execute(look) == [(None, True)] * 2
        trainer.start(hook)
        for _ in range(2):
            assert trainer.execute(look) == trainer.run(look) == [("set", False)] * 2


def test_so_do_those_of_a_revival(tmp_path: Path) -> None:
    def train() -> tuple[list[str], Any]:
        saved, was = sgd.load_checkpoint(), leave_traces()[1]
        if saved is None:
            sgd.save_checkpoint(step=1)
            sgd.report(step=1)
            if sgd.world_rank() == 1:
                while not Path(tmp_path, "reported").exists():
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                sgd.heartbeat()
                _manta.check()
                time.sleep(0.001)
        return was, saved["step"]

    class Watch(sgd.SGDCallback):
        def handle_result(self, results: Any, **info: Any) -> None:
            Path(tmp_path, "reported").touch()
    with Trainer(TellConfig(), num_workers=(2, 2), logdir=tmp_path, quiet=True) as trainer:
        assert trainer.run(train, callbacks=[Watch()]) == [(["told"], 1)] * 2


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


def test_an_instance_keeps_its_process(tmp_path: Path) -> None:
    with Trainer(None, num_workers=1, logdir=tmp_path) as trainer:
        trainer.start(Counter)
        assert trainer.run(leave_traces)[0][1] == []
        assert trainer.execute(lambda c: c.count()) == [1]
        assert trainer.run(leave_traces)[0][1] == ["a run"]
        assert trainer.execute(lambda c: c.count()) == [2]
        trainer.shutdown()
        assert trainer.run(leave_traces)[0][1] == []
        assert trainer.run(leave_traces)[0][1] == [], "the class is not there any more"


def test_the_workers_of_a_group_are_kept(tmp_path: Path) -> None:
    with WorkerGroup(2, logdir=tmp_path) as group:
        call(group)
        assert group.execute(lambda: leave_traces()[1]) == [["a call"]] * 2


def test_a_closed_pipe_is_an_error_and_no_death() -> None:
    """As in any process of Python's. A framework's own sockets count on it, too."""
    def train() -> str:
        import socket
        near, far = socket.socketpair()
        far.close()
        try:
            os.write(near.fileno(), b"x")  # a send() would spare us the signal
        except BrokenPipeError as e:
            return str(e)
        return "nothing"

    with Trainer(None, max_retries=0, quiet=True) as trainer:
        assert trainer.run(train) == ["[Errno 32] Broken pipe"]

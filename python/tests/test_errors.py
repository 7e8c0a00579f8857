# SPDX-License-Identifier: Apache-2.0
"""Exceptions of workers: what they were, in the driver, and one traceback of the user's frames."""

from __future__ import annotations

import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from manta import sgd
from manta.sgd import Trainer


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(None, num_workers=1, quiet=True, logdir=tmp_path_factory.mktemp("runs")) as t:
        yield t


class DataError(ValueError):
    def __init__(self, path: str, line: int):
        super().__init__(f"{path}:{line} is broken")
        self.path, self.line = path, line


class Keyed(Exception):
    def __init__(self, *, key: Any):
        self.key = key


class Made(ValueError):
    def __new__(cls, a: int, b: int) -> Made:
        return super().__new__(cls, a)

    def __init__(self, a: int, b: int):
        super().__init__(a)
        self.b = b


class Gone(OSError):
    def __init__(self, path: str):
        super().__init__(2, "gone", path)


class Slotted(Exception):
    __slots__ = ("p",)

    def __init__(self, p: int):
        self.p = p


@dataclass(frozen=True)
class Frozen(Exception):
    a: int


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Several(ExceptionGroup[Exception]):
    pass


def raised(trainer: Trainer, function: Callable[[], Any]) -> Any:
    with pytest.raises(BaseException) as caught:
        trainer.run(function)
    return caught.value


def raiser(make: Callable[[], BaseException]) -> Callable[[], None]:
    def train() -> None:
        raise make()
    return train


# --- itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, names", [
    (lambda: DataError("a.csv", 7), ["path", "line"]),
    (lambda: Keyed(key={"a": 1}), ["key"]),
    (lambda: Made(1, 2), ["b", "args"]),
    (lambda: Gone("/x"), ["filename", "errno", "strerror"]),
    (lambda: Slotted(5), ["p"]),
    (lambda: Frozen(1), ["a"]),
    (lambda: Mute(1), ["args"]),
    (lambda: UnicodeDecodeError("utf8", b"\xff", 0, 1, "bad"), ["reason", "object"]),
    (lambda: ModuleNotFoundError("no x", name="x"), ["name", "msg"]),
    (lambda: StopIteration(5), ["value"]),
    (lambda: ValueError("a\0b\udc80"), ["args"]),
])
def test_class_and_attributes(one: Trainer, make: Callable[[], BaseException],
                              names: list[str]) -> None:
    meant, got = make(), raised(one, raiser(make))
    assert type(got) is type(meant) and got.rank == 0
    assert [getattr(got, n) for n in names] == [getattr(meant, n) for n in names]


def test_causes_contexts_notes_and_groups(one: Trainer) -> None:
    def train() -> None:
        try:
            try:
                raise KeyError("first")
            except KeyError as e:
                raise DataError("a.csv", 7) from e
        except DataError:
            error = Several("both", [Keyed(key=1), ExceptionGroup("inner", [OSError(2, "gone")])])
            error.add_note("a note")
            raise error

    got = raised(one, train)
    assert type(got) is Several and got.message == "both" and got.__notes__[0] == "a note"
    keyed, inner = got.exceptions
    assert type(keyed) is Keyed and keyed.key == 1
    assert type(inner) is ExceptionGroup and isinstance(inner.exceptions[0], FileNotFoundError)
    assert type(got.__context__) is DataError and got.__context__.line == 7
    assert type(got.__context__.__cause__) is KeyError and got.__cause__ is None
    said = "".join(traceback.format_exception(got))
    assert said.count("raise KeyError") == said.count("raise DataError") == 1, said


def test_what_cannot_come_is_told_in_words(one: Trainer) -> None:
    def train() -> None:
        import threading
        error = Keyed(key=threading.Lock())
        error.large = bytes(4 << 20)  # type: ignore[attr-defined]
        error.small = 3  # type: ignore[attr-defined]
        raise error

    got = raised(one, train)
    assert type(got) is Keyed and "lock" in repr(got.key) and got.small == 3
    assert len(repr(got.large)) < 1000


def test_a_class_that_does_not_come(one: Trainer) -> None:
    def train() -> None:
        import threading

        class Odd(LookupError):
            lock = threading.Lock()
        raise Odd("why")

    got = raised(one, train)
    assert isinstance(got, LookupError) and type(got).__name__ == "Odd" and "why" in str(got)


def test_exceptions_are_values_too(one: Trainer) -> None:
    (error,), = one.run(lambda: [DataError("a.csv", 7)])
    assert type(error) is DataError and error.line == 7
    with pytest.raises(RuntimeError, match="ended by KeyboardInterrupt"):
        one.run(raiser(KeyboardInterrupt))


# --- nothing hides it -----------------------------------------------------------------------------


class Lazy:
    @property
    def shape(self) -> Any:
        raise RuntimeError("lazy")


class Rude(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("rude")


def test_no_variable_hides_an_error(one: Trainer) -> None:
    def train() -> None:
        import numpy
        from unittest.mock import MagicMock
        kinds = numpy.ndarray, numpy.generic
        kind, lazy, mock, rude = numpy.ndarray, Lazy(), MagicMock(), Rude("R", (), {})
        long, many = "a" * 10_000_000, {i: i for i in range(100_000)}
        array = numpy.zeros(3)
        raise FileNotFoundError("train.csv", kinds, kind, lazy, mock, rude, long, many, array)

    got = raised(one, train)
    assert type(got) is FileNotFoundError and "train.csv" in str(got)


# --- one traceback --------------------------------------------------------------------------------


def test_the_traceback_is_the_users_and_told_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text('''
from manta import sgd
from manta.sgd import Trainer

def deep(n):
    if n == 0:
        sgd.save_checkpoint(1, 2)
    deep(n - 1)

def train():
    deep(3)

Trainer(None, num_workers=2).run(train)
''')
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, text=True,
                          capture_output=True, timeout=50)
    lines = done.stderr.splitlines()
    files = [s.split('"')[1] for s in lines if s.startswith('  File "')]
    mine = str(tmp_path / "script.py")
    ours = [f for f in files if f != mine]
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1, done.stderr
    assert files == [mine, ours[0], *[mine] * 5, ours[1]] and len(ours) == 2, done.stderr
    assert any("manta: as it was raised, by a worker" in s for s in lines), done.stderr
    assert "TypeError: " in done.stderr and "raised by rank " in lines[-1], done.stderr


def test_a_loop_over_a_run_is_folded_too(one: Trainer) -> None:

    def train() -> None:
        sgd.report(a=1)
        raise DataError("train", 2)

    with pytest.raises(DataError, match="train") as caught:
        for _ in one.run_generator(train):
            pass
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_a_loop_over_a_run_is_folded_too", "call", "train"]


# --- ends -----------------------------------------------------------------------------------------


EXITS = '''
import ctypes, os, sys, threading, time
import manta
from manta import sgd
from manta.sgd import Trainer

def train(how):
    sgd.report(rank=sgd.world_rank())
    if sgd.world_rank() == 0:
        return "stayed"
    if how == "thread":
        threading.Thread(target=os._exit, args=(0,)).start()
        time.sleep(60)
    if how == "child":
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return "stayed too"
    if how == "C":
        ctypes.CDLL(None)._exit(0)
    try:
        os._exit(3 if how == "code" else 0)
    finally:
        print("not finalised")

trainer = Trainer(None, num_workers=(2, 2), max_retries=0, show_all_output=True)
for how in ("plain", "thread", "child", "plain", "code", "C"):
    try:
        print(how, trainer.run(lambda config: train(config["how"]), {"how": how}))
    except manta.WorkerLost as e:
        print(how, "lost:", e.rank, "exit code" in str(e) or str(e))
'''


def test_os_exit_ends_a_rank_well_and_exit_from_c_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", EXITS], text=True, capture_output=True, timeout=50)
    said = [s for s in done.stdout.splitlines() if not s.startswith("manta")]
    assert said == ["plain ['stayed', None]", "thread ['stayed', None]",
                    "child ['stayed', 'stayed too']", "plain ['stayed', None]",
                    "code lost: 1 True", "C lost: 1 True"], done.stdout + done.stderr


def test_who_waits_for_a_rank_that_left_is_told() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    import manta
    from manta.sgd import TorchConfig

    def train(config: dict[str, str]) -> None:
        import os
        import torch
        import torch.distributed as dist
        if dist.get_rank() == 1:
            sys.exit() if config["how"] == "sys.exit" else os._exit(0)
        dist.all_reduce(torch.ones(3))

    for backend in ("manta", "gloo"):
        with Trainer(TorchConfig(backend=backend), num_workers=(2, 2), quiet=True,
                     max_retries=0) as trainer:
            for how in ("sys.exit", "os._exit"):
                with pytest.raises(RuntimeError) as caught:
                    trainer.run(train, {"how": how})
                said = "".join(traceback.format_exception_only(caught.value))
                assert "rank 1 has left its train function" in said, said
                assert backend == "gloo" or type(caught.value) is manta.PeerLost

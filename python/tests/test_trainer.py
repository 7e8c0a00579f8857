# SPDX-License-Identifier: Apache-2.0
"""The trainer: arguments, runs, results, errors, what surrounds a function in a worker."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Iterator

import pytest

import manta
from manta import sgd
from manta.sgd import Trainer, WorkerGroup


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """Two workers without a framework; tests that break them make their own."""
    trainer = Trainer(backend=None, num_workers=2, logdir=tmp_path_factory.mktemp("runs"))
    yield trainer
    trainer.shutdown()


# --- runs -----------------------------------------------------------------------------------------


def test_a_function_runs_on_all_workers(two: Trainer) -> None:
    assert two.run(lambda: (sgd.world_rank(), sgd.world_size())) == [(0, 2), (1, 2)]


def test_config_of_the_run_replaces_that_of_the_trainer(tmp_path: Path) -> None:
    with Trainer(backend=None, config={"a": 1, "b": 2}, logdir=tmp_path) as t:
        assert t.run(lambda config: config) == [{"a": 1, "b": 2}]
        assert t.run(lambda config: config, config={"c": 3}) == [{"c": 3}]


def test_without_a_config_there_is_an_empty_one(two: Trainer) -> None:
    assert two.run(lambda config: config) == [{}, {}]


def test_star_args_count_as_one(two: Trainer) -> None:
    assert two.run(lambda *args: args, config={"x": 1}) == [({"x": 1},)] * 2


def test_partials_and_methods_are_functions(two: Trainer) -> None:
    class Task:
        def train(self, config: dict[str, Any]) -> int:
            return config["x"] + 1

    def add(y: int, config: dict[str, Any]) -> int:
        return config["x"] + y

    assert two.run(Task().train, {"x": 1}) == [2, 2]
    assert two.run(functools.partial(add, 5), {"x": 1}) == [6, 6]


@pytest.mark.parametrize("value", [
    None, True, 0, -1, 2**70, 1.5, float("inf"), "text", "nul\0inside", b"bytes", (1, 2), [1, (2,)],
    {"a": {"b": [None]}}, {1: 2}, {"$x": 1}, {1, 2}, range(3), "\ud800"])
def test_values_come_back_as_they_are(two: Trainer, value: Any) -> None:
    got = two.run(lambda config: config["value"], {"value": value})
    assert got == [value, value]
    assert [type(v) for v in got] == [type(value)] * 2


def test_objects_of_a_local_class_come_back(two: Trainer) -> None:
    class Point:
        def __init__(self, x: int):
            self.x = x

    assert [p.x for p in two.run(lambda: Point(sgd.world_rank()))] == [0, 1]


def test_a_run_can_have_another_number_of_workers(two: Trainer) -> None:
    assert len(two.run(lambda: 0, num_workers=3)) == 3
    assert len(two.run(lambda: 0)) == 2


def test_each_rank_has_a_process(two: Trainer) -> None:
    first = two.run(os.getpid)
    assert len(set(first)) == 2 and os.getpid() not in first


def test_a_shut_down_trainer_starts_again(tmp_path: Path) -> None:
    t = Trainer(backend=None, logdir=tmp_path)
    first = t.run(os.getpid)
    t.shutdown()
    t.shutdown()
    assert not _alive(first[0])
    assert t.run(os.getpid) != first
    t.shutdown()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- errors ---------------------------------------------------------------------------------------


def test_an_exception_keeps_type_message_and_traceback(two: Trainer) -> None:
    class Mine(Exception):
        pass

    def deep() -> None:
        raise Mine("why", sgd.world_rank())

    def train() -> None:
        if sgd.world_rank() == 1:
            deep()
        time.sleep(10)

    with pytest.raises(Mine) as caught:
        two.run(train)
    assert caught.value.args == ("why", 1)
    assert caught.value.rank == 1  # type: ignore[attr-defined]
    assert "rank 1" in caught.value.__notes__[0]
    said = "".join(traceback.format_exception(caught.value))
    assert said.count("in deep") == said.count("in train") == 1 and "During handling" not in said


def test_an_exception_that_cannot_be_pickled_is_still_caught(two: Trainer) -> None:
    class Odd(ValueError):
        def __init__(self, a: int, b: int):
            super().__init__(f"{a} and {b}")
            self.lock = threading.Lock()

    def train() -> None:
        raise Odd(1, 2)

    with pytest.raises(ValueError, match="1 and 2") as caught:
        two.run(train)
    assert type(caught.value).__name__ == "Odd"
    assert "Lock" in repr(caught.value.lock) or "lock" in repr(caught.value.lock)  # type: ignore
    assert "raise Odd(1, 2)" in "".join(traceback.format_exception(caught.value))


def test_sys_exit_in_a_worker_does_not_end_the_driver(two: Trainer) -> None:
    with pytest.raises(RuntimeError, match=r"rank \d called sys.exit\(3\)") as caught:
        two.run(lambda: sys.exit(3))
    assert caught.value.code == 3  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no such file"):
        two.run(lambda: sys.exit("no such file"))


def test_sys_exit_without_a_code_ends_a_rank_well(two: Trainer) -> None:
    def train() -> int:
        if sgd.world_rank() == 0:
            sys.exit()
        return 1

    assert two.run(train) == [None, 1]
    assert two.run(lambda: sys.exit(0)) == two.execute(lambda: sys.exit(0)) == [None, None]


def test_an_unpicklable_variable_is_named(two: Trainer) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="'lock'.*lock"):
        two.run(lambda: lock)
    with pytest.raises(TypeError, match="'bad'"):
        two.run(lambda config: 1, config={"good": 1, "bad": lock})


def test_torch_that_is_missing_or_too_old_is_named(tmp_path: Path) -> None:
    """The first at once, the second by what workers are forked from, which alone imports it."""
    program = ("import sys; from manta.sgd import Trainer\n"
               "if len(sys.argv) > 1: sys.path = [p for p in sys.path if 'packages' not in p]\n"
               "Trainer(backend='torch', num_workers=1).run(lambda: 1)")
    assert "torch is not installed for " in failure_of(program, "without")
    fake = tmp_path / "torch" / "__init__.py"
    fake.parent.mkdir()
    fake.write_text("__version__ = '2.7.1+cu126'")
    said = failure_of(program, PYTHONPATH=str(tmp_path))
    assert "ImportError: manta needs torch 2.8 or later, and this is 2.7.1+cu126" in said, said


def failure_of(program: str, *argv: str, **env: str) -> str:
    """What it says on its way out."""
    done = subprocess.run([sys.executable, "-c", program, *argv], env={**os.environ, **env},
                          text=True, capture_output=True, timeout=50)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_an_unpicklable_result_is_the_users_error(two: Trainer) -> None:
    with pytest.raises(TypeError, match="lock"):
        two.run(lambda: threading.Lock())


@pytest.mark.parametrize("arguments, kind, words", [
    ({"num_workers": 0}, ValueError, "1 to"),
    ({"num_workers": 1.5}, TypeError, "int"),
    ({"num_workers": True}, TypeError, "int"),
    ({"num_workers": (3, 2)}, ValueError, "min <= max"),
    ({"num_workers": (1, 2, 3)}, ValueError, "min, max"),
    ({"num_workers": 2, "workers": 2}, ValueError, "workers"),
    ({"backend": "jax"}, ValueError, "'torch'"),
    ({"backend": 3}, TypeError, "BackendConfig"),
    ({"backend_args": "torch"}, TypeError, "BackendConfig"),
    ({"backend": None, "max_retries": -2}, ValueError, "max_retries"),
    ({"backend": None, "step_timeout": 0}, ValueError, "step_timeout"),
    ({"backend": None, "retry_exceptions": (1,)}, TypeError, "exception types"),
    ({"backend": None, "address": "ray"}, ValueError, "'local'"),
    ({"backend": None, "cpus_per_worker": 1, "resources_per_worker": {"CPU": 2}}, ValueError,
     "contradict"),
    ({"backend": None, "use_gpu": True, "gpus_per_worker": 0}, ValueError, "contradict"),
    ({"backend": None, "cpus_per_worker": -1}, ValueError, ">= 0"),
    ({"backend": None, "resources_per_worker": {"x": "y"}}, TypeError, "number"),
])
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], kind: type[Exception],
                                             words: str) -> None:
    with pytest.raises(kind, match=words):
        Trainer(**arguments)


def test_wrong_functions_are_refused_at_once(two: Trainer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes 2 arguments"):
        two.run(lambda a, b: 1)
    with pytest.raises(TypeError, match="callable"):
        two.run(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a checkpoint"):
        two.run(lambda: 1, checkpoint=tmp_path)
    with pytest.raises(TypeError, match="manta.data"):
        two.run(lambda: 1, dataset=[1])


def test_more_than_the_host_has_is_an_error_at_once(tmp_path: Path) -> None:
    t = Trainer(backend=None, num_workers=2, cpus_per_worker=1000, logdir=tmp_path)
    with pytest.raises((ValueError, manta.NoRoom), match="2 workers x 1000 CPUs.*this host has"):
        t.run(lambda: 1)


# --- lost workers ---------------------------------------------------------------------------------


def test_a_lost_worker_is_revived(tmp_path: Path) -> None:
    def train() -> tuple[int, int]:
        from manta import _manta
        attempt = _manta.place()[5]
        if attempt == 0 and sgd.world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while attempt == 0:
            sgd.report(x=1)  # until it is told
            time.sleep(0.01)
        return attempt, os.getpid()

    with Trainer(backend=None, num_workers=2, logdir=tmp_path, quiet=True) as t:
        before = t.execute(os.getpid)
        after = t.run(train)
        assert [a for a, _ in after] == [1, 1]
        assert not {pid for _, pid in after} & set(before)


def test_retries_are_used_up(tmp_path: Path) -> None:
    def train() -> None:
        if sgd.world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)

    t = Trainer(backend=None, num_workers=2, max_retries=0, logdir=tmp_path, quiet=True)
    with pytest.raises(RuntimeError, match=r"rank 1 .*SIGKILL") as caught:
        t.run(train)
    assert isinstance(caught.value, manta.WorkerLost)
    assert "idle" not in str(t)  # it is shut down


def test_exceptions_are_retried_if_asked(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> int:
        from manta import _manta
        attempt = _manta.place()[5]
        if attempt < 2:
            raise config["error"]("again")
        return attempt

    with Trainer(backend=None, retry_exceptions=(OSError,), logdir=tmp_path, quiet=True) as t:
        assert t.run(train, {"error": OSError}) == [2]
        with pytest.raises(KeyError):
            t.run(train, {"error": KeyError})
    with Trainer(backend=None, retry_exceptions=True, logdir=tmp_path, quiet=True) as t:
        assert t.run(train, {"error": KeyError}) == [2]
    with Trainer(backend=None, logdir=tmp_path, quiet=True) as t:
        with pytest.raises(OSError):
            t.run(train, {"error": OSError})


# --- class API ------------------------------------------------------------------------------------


class Counter:
    def __init__(self, start: int, step: int = 1):
        self.n, self.step = start, step

    def add(self, times: int = 1) -> int:
        self.n += times * self.step
        return self.n + 1000 * sgd.world_rank()


def test_class_api(tmp_path: Path) -> None:
    with Trainer(backend=None, num_workers=2, logdir=tmp_path) as t:
        t.start(Counter, (5,), {"step": 2})
        assert t.execute(lambda c: c.add()) == [7, 1007]
        assert t.execute_single(lambda c: c.add(2)) == 11
        assert t.execute(lambda c, k: c.n + k, 100) == [111, 107]


def test_calls_without_a_class(two: Trainer) -> None:
    assert two.execute(lambda x: x + sgd.world_rank(), 10) == [10, 11]
    assert two.execute_single(os.getpid) == two.run(os.getpid)[0]


def test_worker_group_is_a_list(two: Trainer) -> None:
    group = two.to_worker_group(Counter, 1)
    assert len(group) == 2
    assert [w.add(5) for w in group] == [6, 1006]
    assert group[1].add() == 1007 and group[-1].execute(lambda c: c.n) == 7
    assert group.execute(lambda c: c.n) == [6, 7]
    assert group.apply(lambda c, k: c.n * k, 2) == [12, 14]
    assert group.execute_single(1, lambda c: c.n) == 7
    assert len(group[:1]) == 1
    with pytest.raises(IndexError):
        group[2]


def test_a_worker_group_stands_alone() -> None:
    with WorkerGroup(2) as group:
        assert group.execute(sgd.world_rank) == [0, 1]
        assert group[1].execute(lambda: sgd.world_rank() + 5) == 6


def test_an_initialization_hook_runs_once_in_every_worker(tmp_path: Path) -> None:
    def hook() -> None:
        import builtins
        builtins.hooks = getattr(builtins, "hooks", 0) + 1  # type: ignore[attr-defined]

    def hooks() -> int:
        import builtins
        return builtins.hooks  # type: ignore[attr-defined,no-any-return]

    with Trainer(backend=None, num_workers=2, logdir=tmp_path) as t:
        t.start(initialization_hook=hook)
        assert t.run(hooks) == [1, 1]
        assert t.run(hooks) == [1, 1]


def test_an_own_backend_is_told(tmp_path: Path) -> None:
    class Hooks(sgd.Backend):
        def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
            backend_config.seen.append(worker_group.execute(sgd.world_rank))

        def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
            backend_config.seen.append("down")

        def enter(self, backend_config: Any) -> None:
            os.environ["ENTERED"] = backend_config.word

    class Config(sgd.BackendConfig):
        word = "yes"

        def __init__(self) -> None:
            self.seen: list[Any] = []

        @property
        def backend_cls(self) -> type[sgd.Backend]:
            return Hooks

    config = Config()
    t = Trainer(backend=config, num_workers=2, logdir=tmp_path)
    t.start()
    assert t.run(lambda: os.environ["ENTERED"]) == ["yes", "yes"]
    t.shutdown()
    assert config.seen == [[0, 1], "down"]


# --- what a worker takes over ---------------------------------------------------------------------


def test_directory_environment_and_path_follow_the_driver(two: Trainer, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "local_module.py").write_text("VALUE = 'mine'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINER_TEST", "1")
    monkeypatch.syspath_prepend(str(tmp_path))

    def look() -> tuple[str, str | None, str]:
        import local_module  # type: ignore[import-not-found]
        return os.getcwd(), os.environ.get("TRAINER_TEST"), local_module.VALUE

    assert two.run(look) == [(str(tmp_path), "1", "mine")] * 2
    monkeypatch.delenv("TRAINER_TEST")
    assert two.run(lambda: os.environ.get("TRAINER_TEST")) == [None, None]


def test_torchruns_environment_is_there(two: Trainer) -> None:
    def look() -> tuple[str, ...]:
        return tuple(os.environ[n] for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK",
                                             "LOCAL_WORLD_SIZE", "NODE_RANK"))

    assert two.run(look) == [("0", "2", "0", "2", "0"), ("1", "2", "1", "2", "0")]


def test_an_edited_module_is_seen_by_the_next_trainer(tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "edited_module.py"
    monkeypatch.syspath_prepend(str(tmp_path))

    def look() -> int:
        import edited_module  # type: ignore[import-not-found]
        return edited_module.X  # type: ignore[no-any-return]

    for x in (1, 22):
        module.write_text(f"X = {x}\n")
        with Trainer(backend=None, logdir=tmp_path) as t:
            assert t.run(look) == [x]


def test_output_of_rank_0_comes_through_sys_stdout(two: Trainer,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    two.run(lambda: print("word of", sgd.world_rank()))
    assert capsys.readouterr().out == "(rank 0) word of 0\n"


def test_a_closed_standard_error_is_no_failure(tmp_path: Path) -> None:
    with Trainer(backend=None, logdir=tmp_path) as t:
        assert t.run(lambda: sys.stderr.close()) == [None]
        assert t.run(lambda: 1) == [1]


def test_ctrl_c_while_output_is_shown_is_not_lost(tmp_path: Path) -> None:
    def interrupt(stream: int, text: str) -> None:
        raise KeyboardInterrupt

    t = Trainer(backend=None, logdir=tmp_path)
    t._show = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        t.run(lambda: [print("word"), time.sleep(30)])
    assert "idle" not in str(t)  # its workers are gone


def test_a_table_of_the_workers(two: Trainer) -> None:
    pids = two.run(os.getpid)
    assert all(str(pid) in str(two) for pid in pids)


def test_session_calls_in_plain_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manta._front.session._told", set())
    assert not sgd.in_worker()
    with pytest.warns(UserWarning, match="report"):
        sgd.report(x=1)
    sgd.report(x=1)  # once
    assert (sgd.world_rank(), sgd.world_size(), sgd.local_rank()) == (0, 1, 0)
    assert sgd.load_checkpoint() is None and not sgd.preempted()
    monkeypatch.setenv("MANTA_STRICT", "1")
    for call in (sgd.report, sgd.save_checkpoint, sgd.load_checkpoint, sgd.world_rank,
                 sgd.heartbeat):
        with pytest.raises(sgd.SessionError):
            call()


# --- the end of a driver --------------------------------------------------------------------------


def _driver(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    script = tmp_path / "driver.py"
    script.write_text("import os, sys, time\nfrom manta import sgd\nfrom manta.sgd import Trainer\n"
                      + textwrap.dedent(body))
    env = {**os.environ, "MANTA_RESULTS": str(tmp_path / "runs")}
    return subprocess.Popen([sys.executable, str(script)], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


SLEEPER = """
    def train():
        print(os.getpid(), flush=True)
        for i in range(10**6):
            sgd.report(i=i)
            time.sleep(0.01)

    if __name__ == "__main__":
        Trainer(backend=None, num_workers=1).run(train)
"""


def _worker_of(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    return int(driver.stdout.readline().split()[-1])


def _await_end(pid: int) -> None:
    for _ in range(1000):
        if not _alive(pid):
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} is still there")


@pytest.mark.parametrize("sig, code", [(signal.SIGINT, -2), (signal.SIGTERM, 75),
                                       (signal.SIGKILL, -9)])
def test_a_driver_that_is_ended_leaves_nothing(tmp_path: Path, sig: signal.Signals,
                                               code: int) -> None:
    driver = _driver(tmp_path, SLEEPER)
    pid = _worker_of(driver)
    zygote = int(Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[1])
    driver.send_signal(sig)
    out, err = driver.communicate(timeout=30)
    assert driver.returncode == code, err
    _await_end(pid)
    _await_end(zygote)
    if sig == signal.SIGTERM:
        assert "manta resume" in err


def test_a_host_may_declare_what_it_has(tmp_path: Path) -> None:
    driver = _driver(tmp_path, """
        import manta
        manta.prestart("none")
        manta.init(num_cpus=7, resources={"disk": 2})
        t = Trainer(backend=None, num_workers=2, cpus_per_worker=3,
                    resources_per_worker={"disk": 1})
        assert t.run(lambda: 1) == [1, 1]
        assert "6/7" in str(t), str(t)
        try:
            Trainer(backend=None, num_workers=3, resources_per_worker={"disk": 1}).run(lambda: 1)
        except ValueError as e:
            assert "disk" in str(e), e
            print("fine")
        try:
            manta.init()
        except RuntimeError:
            print("late")
    """)
    out, err = driver.communicate(timeout=30)
    assert out == "fine\nlate\n", err


def test_a_broken_off_run_is_restored(tmp_path: Path) -> None:
    body = """
        def train(config):
            from manta import _manta
            for i in range(_manta.iteration(), 5):
                sgd.report(i=i)
                if i == 2 and config["die"]:
                    os.kill(os.getppid(), 0)
                    os.kill(config["driver"], 9)
                    time.sleep(30)
            return "done"

        if __name__ == "__main__":
            if len(sys.argv) == 1:
                Trainer(backend=None, num_workers=1).run(
                    train, {"die": True, "driver": os.getpid()})
    """
    driver = _driver(tmp_path, body)
    driver.communicate(timeout=30)
    assert driver.returncode == -9
    [run] = (tmp_path / "runs").iterdir()
    t = Trainer.restore(run)
    assert t.run(lambda config: "again", {"die": False}) == ["again"]
    assert t.latest_run_dir == run
    assert len(list((tmp_path / "runs").iterdir())) == 1
    t.shutdown()
    with pytest.raises(ValueError, match="not the directory of a run"):
        Trainer.restore(tmp_path)


# --- threads --------------------------------------------------------------------------------------


def test_workers_compute_with_their_part_of_the_cpus(two: Trainer) -> None:
    def threads() -> int:
        return int(os.environ["OMP_NUM_THREADS"])

    most, = two.run(threads, num_workers=1)
    assert 1 <= most <= len(os.sched_getaffinity(0))
    assert two.run(threads) == [max(1, most // 2)] * 2
    assert two.run(threads, num_workers=most + 1) == [1] * (most + 1)
    with Trainer(None, num_workers=(1, 2), threads_per_worker=3, quiet=True) as t:
        assert t.run(threads) == [3, 3]
    with Trainer(None, num_workers=(1, 2), quiet=True) as t:
        assert t.run(threads) == [max(1, most // 2)] * 2

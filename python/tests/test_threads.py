# SPDX-License-Identifier: Apache-2.0
"""report, save_checkpoint and load_checkpoint from several threads of a worker at once, and from
its child processes, which may not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, Callable

import pytest

from manta import sgd
from manta.sgd import Trainer

THREADS = 4


def in_threads(work: Callable[[int], None], n: int = THREADS) -> None:
    with ThreadPoolExecutor(n) as pool:
        for _ in pool.map(work, range(n)):  # raises what a thread raised
            pass


def report_from_threads(config: dict[str, Any]) -> None:
    def work(k: int) -> None:
        for i in range(config["n"]):
            sgd.report(k=k, i=i, pad="x" * ((i * 37 + k * 11) % 300))

    in_threads(work)


def state_of(k: int, i: int) -> dict[str, Any]:
    return {"k": k, "i": i, "pad": bytes([65 + k]) * (1000 * (k + 1) + i)}


def is_whole(state: dict[str, Any]) -> bool:
    return {k: state[k] for k in ("k", "i", "pad")} == state_of(state["k"], state["i"])


def save_from_threads(config: dict[str, Any]) -> int:
    """Half of the threads save, the others report."""
    loaded = []

    def work(k: int) -> None:
        for i in range(config["n"]):
            if k % 2:
                sgd.report(k=k, i=i)
            else:
                sgd.save_checkpoint(**state_of(k, i))
                loaded.append(is_whole(sgd.load_checkpoint()))

    in_threads(work)
    assert all(loaded)
    return len(loaded)


@pytest.fixture(scope="module")
def trainer() -> Any:
    with Trainer(backend=None, num_workers=1, quiet=True, max_retries=0) as t:
        yield t


def test_rows_of_threads_are_whole_and_in_order(trainer: Trainer) -> None:
    last = dict.fromkeys(range(THREADS), -1)
    iteration = 0
    for row in trainer.run_generator(report_from_threads, config={"n": 2000}):
        k, i = row["k"], row["i"]
        iteration += 1
        assert row["_training_iteration"] == iteration
        assert i == last[k] + 1 and row["pad"] == "x" * ((i * 37 + k * 11) % 300)
        last[k] = i
    assert last == dict.fromkeys(range(THREADS), 1999)


def test_snapshots_of_threads_are_whole(trainer: Trainer) -> None:
    n = 50
    assert trainer.run(save_from_threads, config={"n": n}) == [n * THREADS // 2]
    last = trainer.get_last_checkpoint()
    assert last["i"] == n - 1 and is_whole(last)


def report_until_ended() -> None:
    def work(k: int) -> None:
        while True:
            sgd.report(pad="x" * 4000)
            if k == 0:
                sgd.save_checkpoint(k=k)

    in_threads(work)


def test_threads_that_wait_end_with_the_run(trainer: Trainer) -> None:
    rows = trainer.run_generator(report_until_ended)
    next(rows)
    time.sleep(0.3)  # nobody takes rows: all threads wait, one for room and the others for it
    rows.close()
    assert trainer.run(lambda: 7) == [7]


def go_on_after_the_end() -> None:
    def work() -> None:
        while sgd.in_worker():
            sgd.report(late=1)

    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)


def test_a_thread_may_outlive_the_function(trainer: Trainer) -> None:
    for _ in range(3):
        trainer.run(go_on_after_the_end)


# --- child processes ------------------------------------------------------------------------------


def call_in_children() -> list[str]:
    """What report and its like say in a forked child and in a spawned one."""
    import multiprocessing

    said = []
    stop = threading.Event()

    def keep_reporting() -> None:
        while not stop.is_set():
            sgd.report(busy=1)

    thread = threading.Thread(target=keep_reporting)
    thread.start()
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            for call in (sgd.report, sgd.save_checkpoint):
                error = pool.submit(call, a=1).exception(timeout=40)
                said.append(f"{method} {call.__name__}: {error}")
            error = pool.submit(sgd.load_checkpoint).exception(timeout=40)
            said.append(f"{method} load_checkpoint: {error}")
    stop.set()
    thread.join()
    return said


def test_child_processes_are_told(trainer: Trainer) -> None:
    said = trainer.run(call_in_children)[0]
    assert len(said) == 6
    assert all("in a child process of a worker" in text for text in said), said

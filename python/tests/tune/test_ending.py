# SPDX-License-Identifier: Apache-2.0
"""The end of a trial's process: what the trial has asked for at its exit happens, and nothing of
what the process was forked with."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import Any

import pytest

from manta import tune


def append(path: Path, text: str) -> None:
    with open(path, "a") as f:
        f.write(text + "\n")


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def leaves_much(config: dict[str, Any]) -> None:
    """All that an interpreter looks after when it ends."""
    import logging
    import logging.handlers
    import tempfile
    import threading
    import weakref
    from concurrent.futures import ThreadPoolExecutor
    place, end = Path(config["place"]), config["end"]
    atexit.register((place / "atexit").touch)
    atexit.register(lambda: 1 / 0)  # told, and no reason not to go on
    weakref.finalize(atexit, (place / "finalizer").touch)

    def late() -> None:
        time.sleep(0.05)
        (place / "thread").touch()
    threading.Thread(target=late).start()
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    globals()["pool"] = pool = ThreadPoolExecutor(1)
    pool.submit(late)
    file = logging.FileHandler(place / "log")
    handler = logging.handlers.MemoryHandler(100, target=file, flushLevel=logging.CRITICAL)
    logging.getLogger("late").addHandler(handler)
    logging.getLogger("late").warning("logged")
    globals()["kept"] = open(place / "file", "w")
    globals()["kept"].write("written")
    globals()["gone"] = directory = tempfile.TemporaryDirectory(dir=place)
    print(directory.name, file=open(place / "directory", "w"))
    tune.report(loss=1)
    if end == "fails":
        raise ValueError("as it was told to")
    while end == "is stopped":
        tune.report(loss=1)


@pytest.mark.parametrize("end", ["returns", "fails", "is stopped"])
def test_what_a_trial_leaves_is_done(end: str, tmp_path: Path) -> None:
    tune.run(leaves_much, {"place": str(tmp_path), "end": end}, verbose=0,
             stop={"training_iteration": 3}, raise_on_failed_trial=False)
    found = {p.name for p in tmp_path.iterdir()}
    assert found == {"atexit", "finalizer", "thread", "log", "file", "directory"}
    assert (tmp_path / "log").read_text() == "logged\n"
    assert (tmp_path / "file").read_text() == "written"
    assert not os.path.exists((tmp_path / "directory").read_text().strip())


class Registers:
    """Registers a function where it is unpickled: before trials are forked."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return _registered, (self.path,)


def _registered(path: Path) -> Registers:
    atexit.register(lambda: append(path, f"inherited:{os.getpid()}"))
    return Registers(path)


@pytest.mark.parametrize("reuse", [False, True])
def test_each_function_is_called_where_it_was_registered(reuse: bool, tmp_path: Path) -> None:
    """With reuse_actors at the end of the worker, for all of its trials."""
    path = tmp_path / "calls"

    def train(config: dict[str, Any], before: Registers) -> dict[str, Any]:
        atexit.register(lambda: append(path, f"own:{os.getpid()}"))
        return {"loss": 1, "pid": os.getpid()}

    found = tune.run(tune.with_parameters(train, before=Registers(path)), num_samples=3,
                     max_concurrent_trials=1, reuse_actors=reuse, verbose=0)
    pids = [str(t.last_result["pid"]) for t in found.trials]
    calls = [c.split(":") for c in lines(path)]
    assert [pid for kind, pid in calls if kind == "own"] == pids
    inherited = [pid for kind, pid in calls if kind == "inherited"]
    assert len(inherited) == 1 and (inherited[0] in pids) == reuse


def test_one_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> float:
        from manta._runtime import ending
        ending.LIMIT_S = 0.2
        atexit.register((tmp_path / "after").touch)
        atexit.register(time.sleep, 1000)
        return 1.0
    found = tune.run(train, verbose=0, log_to_file=True)
    assert found.trials[0].status == "TERMINATED" and (tmp_path / "after").exists()
    said = Path(found.trials[0].logdir, "stderr").read_text()
    assert "took longer than 0.2 s" in said and "sleep" in said


def test_one_that_nothing_gets_into_ends_with_its_process() -> None:
    def train(config: dict[str, Any]) -> float:
        import itertools

        from manta._runtime import ending
        ending.LIMIT_S, ending._MORE_S = 0.1, 0.2
        atexit.register(sum, itertools.repeat(0))
        return 1.0
    found = tune.run(train, verbose=0, raise_on_failed_trial=False)
    assert found.trials[0].status == "ERROR"
    assert "exit" in str(found.trials[0].error_msg)

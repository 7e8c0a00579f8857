# SPDX-License-Identifier: Apache-2.0
"""A worker ends without taking its interpreter apart; what the user asked for at exit happens."""

from __future__ import annotations

from pathlib import Path

from manta.sgd import Trainer


def test_exit_functions_threads_and_output(tmp_path: Path) -> None:
    def train() -> None:
        import atexit
        import sys
        import threading
        import time
        import weakref

        def late() -> None:
            time.sleep(0.1)
            (tmp_path / "thread").touch()

        atexit.register((tmp_path / "atexit").touch)
        weakref.finalize(Trainer, (tmp_path / "finalizer").touch)
        atexit.register(lambda: 1 / 0)  # told, and no reason not to go on
        threading.Thread(target=late).start()
        sys.stdout = open(tmp_path / "output", "w")
        print("the last words", end="")

    with Trainer(backend=None, num_workers=1) as trainer:
        trainer.run(train)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["atexit", "finalizer", "output",
                                                            "thread"]
    assert (tmp_path / "output").read_text() == "the last words"


def test_what_was_imported_before_the_fork_is_not_taken_apart() -> None:
    def left() -> list[str]:
        import weakref
        known = weakref.finalize._registry  # type: ignore[attr-defined]
        return [repr(f.peek()) for f in known if f.atexit]
    with Trainer(backend="torch", num_workers=1, quiet=True) as trainer:
        assert trainer.run(left) == [[]]

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

        def late() -> None:
            time.sleep(0.1)
            (tmp_path / "thread").touch()

        atexit.register((tmp_path / "atexit").touch)
        atexit.register(lambda: 1 / 0)  # told, and no reason not to go on
        threading.Thread(target=late).start()
        sys.stdout = open(tmp_path / "output", "w")
        print("the last words", end="")

    with Trainer(backend=None, num_workers=1) as trainer:
        trainer.run(train)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["atexit", "output", "thread"]
    assert (tmp_path / "output").read_text() == "the last words"

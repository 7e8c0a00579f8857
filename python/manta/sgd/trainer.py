# SPDX-License-Identifier: Apache-2.0
"""The trainer: a group of workers, and runs of functions on them."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Callable

from manta import _driver, _manta


class Trainer:
    def __init__(self, backend: Any = "auto", num_workers: int = 1):
        _driver.embed()
        framework = _driver.choose_framework(None if backend == "auto" else backend or "none")
        program = _driver.program(framework)
        _manta.prestart(program, _driver.default_threads())
        self._trainer = _manta.Trainer(workers=num_workers, program=program)

    def run(self, train_func: Callable[..., Any],
            config: dict[str, Any] | None = None) -> list[Any]:
        import cloudpickle
        header = {"path": sys.path, "argv": sys.argv}
        body = cloudpickle.dumps(lambda: train_func(config))
        run = self._trainer.run(pickle.dumps((header, body)), config, output=self._show)
        try:
            while (item := run.next()) is not None:
                pass
            return run.results()
        finally:
            run.close()

    def _show(self, rank: int, text: str) -> None:
        for line in text.splitlines():
            print(f"(rank {rank}) {line}", flush=True)

# SPDX-License-Identifier: Apache-2.0
"""Callbacks that log what trials report: tune.run(…, callbacks=[TBXLoggerCallback()]). Files are in
the directory of each trial."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from manta._front import refuse as _refuse
from manta._front.sinks import (CSVCallback, CSVLoggerCallback, JsonCallback, JsonLoggerCallback,
                                TBXLoggerCallback, TensorboardCallback)
from manta._front.trackers import (MLflowLoggerCallback, MlflowCallback, WandbCallback,
                                   WandbLoggerCallback)
from manta.tune._callback import Callback

__all__ = ["CSVCallback", "CSVLoggerCallback", "JsonCallback", "JsonLoggerCallback",
           "LoggerCallback", "MLflowLoggerCallback", "MlflowCallback", "TBXLoggerCallback",
           "TensorboardCallback", "WandbCallback", "WandbLoggerCallback", "pretty_print"]
__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


class LoggerCallback(Callback):
    """What to override to log trials in a way of one's own: each of them is called with the trial,
    whose logdir, config and trial_id say what it is."""

    def __init__(self) -> None:
        self._started: set[Any] = set()

    def log_trial_start(self, trial: Any) -> None:
        """Before the first report of a trial."""

    def log_trial_restore(self, trial: Any) -> None:
        """A trial runs again, from a checkpoint."""

    def log_trial_save(self, trial: Any) -> None:
        """A trial has saved a checkpoint."""

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        """A trial is over."""

    def _start(self, trial: Any) -> None:
        started = self.__dict__.setdefault("_started", set())  # __init__ may be overridden
        if trial not in started:
            started.add(trial)
            self.log_trial_start(trial)

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._start(trial)

    def on_trial_restore(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any],
                        **info: Any) -> None:
        self._start(trial)
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)


def pretty_print(result: dict[str, Any], exclude: Any = None) -> str:
    """The report of a trial as text, a line per entry."""
    left = {k: v for k, v in result.items()
            if v is not None and k != "config" and k not in (exclude or ())}
    return json.dumps(left, indent=2, default=repr, sort_keys=True) + "\n"


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

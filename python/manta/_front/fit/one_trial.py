# SPDX-License-Identifier: Apache-2.0
"""Callbacks of an experiment (manta.tune.Callback and its like) in a run of fit(): it is their one
trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from manta._front.callbacks import SGDCallback
from manta._front.fit.result import History


class OneTrial:
    """What such a callback is given as the trial."""

    def __init__(self, history: History, name: str, directory: str, config: Any):
        self._history, self.config, self.status = history, config, "RUNNING"
        self.trial_id, self.trainable_name = history.trial_id, name
        self.logdir = self.local_path = self.path = directory
        self.evaluated_params = config
        self.error_msg: str | None = None

    @property
    def last_result(self) -> dict[str, Any]:
        return self._history.rows[-1] if self._history.rows else {}

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"


class AsOneTrial(SGDCallback):
    """Calls such a callback; it comes behind the history, which has the row by then."""

    def __init__(self, callback: Any, history: History, name: str):
        self._callback, self._history, self._name = callback, history, name
        self.on_error = getattr(callback, "on_error", "continue")
        self.raise_errors = getattr(callback, "raise_errors", False)
        self._trial: Any = None

    def start_training(self, logdir: str, config: Any, num_workers: int, **info: Any) -> None:
        self._trial = OneTrial(self._history, self._name, logdir, config)
        self._call("setup", directory=str(Path(logdir).parent))
        self._call("on_trial_start", 0, [self._trial], self._trial)

    def handle_result(self, results: list[Any], **info: Any) -> None:
        if results and results[0] is not None:
            self._call("on_trial_result", len(self._history.rows), [self._trial], self._trial,
                       {**self._history.rows[-1], "config": self._trial.config})

    def finish_training(self, error: bool = False, **info: Any) -> None:
        self._trial.status = "ERROR" if error else "TERMINATED"
        self._call("on_trial_error" if error else "on_trial_complete", len(self._history.rows),
                   [self._trial], self._trial)
        self._call("on_experiment_end", [self._trial])

    def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        if (function := getattr(self._callback, method, None)) is not None:
            function(*args, **kwargs)

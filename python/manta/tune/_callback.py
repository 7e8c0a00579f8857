# SPDX-License-Identifier: Apache-2.0
"""Callbacks of an experiment: told in the driver of what its trials do."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any



class Callback:
    """What to override. `trials` is a list of all of them, made when it is asked for."""

    raise_errors = False  # True: an exception of this callback ends the experiment

    def setup(self, **info: Any) -> None:
        """The experiment begins; info: directory, metric, mode."""

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial runs, for the first time or again."""

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any],
                        **info: Any) -> None:
        """A trial has reported."""

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has finished, or was stopped."""

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has failed for good."""

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        """The experiment is over."""


class Trials(Sequence[Any]):
    """All trials, each made when it is asked for: an experiment may have many."""

    def __init__(self, analysis: Any):
        self._analysis = analysis

    def __len__(self) -> int:
        return len(self._analysis)

    def __getitem__(self, i: Any) -> Any:
        return self._analysis.trials[i]


class Caller:
    """Calls a list of callbacks; one that fails is shown, and the experiment goes on."""

    def __init__(self, callbacks: list[Any]):
        self.callbacks = callbacks

    def __bool__(self) -> bool:
        return bool(self.callbacks)

    def call(self, method: str, *args: Any, **kwargs: Any) -> None:
        for c in self.callbacks:
            if (function := getattr(c, method, None)) is None:
                continue
            try:
                function(*args, **kwargs)
            except Exception:
                if getattr(c, "raise_errors", False):
                    raise
                print(f"manta: {type(c).__name__}.{method} failed; the experiment continues",
                      file=sys.stderr)
                traceback.print_exc()


def checked(given: Any) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"callbacks must be a list, not {given!r}\nhint: callbacks=[…]")
    for c in given:
        if isinstance(c, type):
            raise TypeError(f"a callback is an object, not the class {c.__name__}\n"
                            f"hint: callbacks=[{c.__name__}()]")
    return list(given)

# SPDX-License-Identifier: Apache-2.0
"""Callbacks: told of the beginning of a run, of every iteration, and of the end. They run on the
thread that called run, in the order in which they were given."""

from __future__ import annotations

import inspect
import sys
import traceback
from typing import Any, Callable, Iterable

from manta._names import public


@public
class SGDCallback:
    """What to override. A method gets those parts of `info` that its signature has room for."""

    on_error = "continue"  # "raise": an exception of this callback ends the run
    raise_errors = False  # True: the same

    def start_training(self, logdir: str, config: dict[str, Any], num_workers: int,
                       **info: Any) -> None:
        """A run begins; logdir is its directory."""

    def handle_result(self, results: list[dict[str, Any] | None], **info: Any) -> None:
        """The reports of one iteration, one per worker in the order of ranks (None: that worker
        made none). info: iteration, complete, and rewound_to after a revival."""

    def finish_training(self, error: bool = False, **info: Any) -> None:
        """The run is over."""


TrainingCallback = SGDCallback


@public
class PrintCallback(SGDCallback):
    """Prints the reports of every iteration."""

    def handle_result(self, results: list[dict[str, Any] | None], **info: Any) -> None:
        print(results, flush=True)


@public
class ProgressCallback(SGDCallback):
    """Shows how far the run is: on a terminal a block that changes in place, in a notebook a table
    that does, elsewhere a line at most every second; and a summary at the end. verbose=1: the
    metrics of rank 0 with their best values, and their range over the workers; 2: those of every
    worker, and the times of the start; 0: nothing. It goes to standard error."""

    def __init__(self, verbose: int = 1):
        if isinstance(verbose, bool) or verbose not in (0, 1, 2):
            raise ValueError(f"verbose must be 0, 1 or 2, not {verbose!r}")
        self.verbose = verbose


def verbosity(callbacks: list[Any]) -> int:
    """libmanta's: the progress that the callbacks ask for; -1: none, 0: MANTA_VERBOSE decides."""
    asked = [c.verbose for c in callbacks if isinstance(c, ProgressCallback)]
    return max(asked) or -1 if asked else 0


def _accepted(method: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """The part of `offered` that the method takes by name."""
    names = _takes(method)
    return offered if names is None else {k: offered[k] for k in names if k in offered}


class Failures:
    """Shows what callbacks raise: the first time with its traceback, the others as a number at the
    end. A callback that fails with every row fails a million times."""

    def __init__(self, what: str):
        self._what = what  # goes on
        self._times: dict[tuple[str, str, type], int] = {}

    def took(self, callback: Any, method: str, error: Exception) -> bool:
        """Whether to go on; called in the handler."""
        if getattr(callback, "on_error", "") == "raise" or getattr(callback, "raise_errors", False):
            return False
        key = (type(callback).__name__, method, type(error))
        self._times[key] = self._times.get(key, 0) + 1
        if self._times[key] == 1:
            print(f"manta: {key[0]}.{method} failed; the {self._what} continues", file=sys.stderr)
            traceback.print_exc()
        return True

    def sum_up(self) -> None:
        for (name, method, error), n in self._times.items():
            if n > 1:
                print(f"manta: {name}.{method} failed {n} times with {error.__name__}",
                      file=sys.stderr)


class Caller:
    """Calls a list of callbacks; one that fails is shown, and the run goes on."""

    def __init__(self, callbacks: list[Any]):
        self.callbacks = callbacks
        self._failures = Failures("run")
        # Looked up once: a signature costs more than most callbacks.
        self._handlers = [(c, c.handle_result, _takes(c.handle_result)) for c in callbacks
                          if _handles(c)]

    def listens(self) -> bool:
        """Whether anybody looks at the rows."""
        return bool(self._handlers)

    def start(self, **info: Any) -> None:
        for c in self.callbacks:
            if (method := getattr(c, "start_training", None)) is not None:
                self._call(c, method, (), _accepted(method, info))

    def result(self, rows: list[Any], info: dict[str, Any]) -> None:
        for c, method, names in self._handlers:
            kwargs = info if names is None else {k: info[k] for k in names if k in info}
            self._call(c, method, (rows,), kwargs)

    def finish(self, **info: Any) -> None:
        for c in self.callbacks:
            if (method := getattr(c, "finish_training", None)) is not None:
                self._call(c, method, (), _accepted(method, info))
        self._failures.sum_up()

    def _call(self, callback: Any, method: Callable[..., Any], args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> None:
        try:
            method(*args, **kwargs)
        except Exception as e:
            if not self._failures.took(callback, method.__name__, e):
                raise


def _handles(callback: Any) -> bool:
    """Not those that have the empty one of SGDCallback."""
    method = getattr(callback, "handle_result", None)
    return method is not None and getattr(method, "__func__", None) is not SGDCallback.handle_result


def _takes(method: Callable[..., Any]) -> list[str] | None:
    """The names of info that the method takes; None: all."""
    parameters = inspect.signature(method).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY and p.name != "results"]


# --- arguments ------------------------------------------------------------------------------------


def checked(given: Any, of_trials: bool = False) -> list[Any]:
    """What `callbacks` of a trainer or a run is given; of_trials: those of experiments, too."""
    if given is None:
        return []
    if isinstance(given, (str, dict)) or not isinstance(given, Iterable):
        raise TypeError(f"callbacks must be a list, not {given!r}\nhint: callbacks=[…]")
    return [c if of_trials and is_of_trials(c) else _checked_one(c) for c in given]


def is_of_trials(callback: Any) -> bool:
    """Whether it is a callback of experiments, as manta.tune.Callback."""
    return not isinstance(callback, type) and not hasattr(callback, "handle_result") and any(
        hasattr(callback, name) for name in ("on_trial_start", "on_trial_result",
                                             "on_trial_complete", "on_experiment_end"))


def _checked_one(callback: Any) -> Any:
    if isinstance(callback, type):
        raise TypeError(f"a callback is an object, not the class {callback.__name__}\n"
                        f"hint: callbacks=[{callback.__name__}()]")
    if not any(hasattr(callback, name) for name in ("start_training", "handle_result",
                                                    "finish_training")):
        raise TypeError(f"{callback!r} is not a callback: it has no handle_result(results)\n"
                        f"hint: derive a class from manta.sgd.SGDCallback; PrintCallback() prints")
    return callback

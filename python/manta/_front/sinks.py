# SPDX-License-Identifier: Apache-2.0
"""Callbacks that are sinks: the reports of a run as files. The process of the run's sinks writes
them (manta/sink.h), so they cost the driver nothing; no method here is called for a report.

A subclass that overrides one of the methods of a callback gets called as any other, and what it
passes on to the method here is written then and there."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, Iterable, Literal

from manta import _manta
from manta._front import config as _config
from manta._front.callbacks import SGDCallback
from manta._names import public

Workers = int | Iterable[int] | Literal["all"] | None
Aggregate = Literal["mean", "min", "max", "last"] | None


class SinkCallback(SGDCallback):
    """What the callbacks below have in common."""

    _kind = ""
    _file: str | None = None  # its default name, where it has one

    def __init__(self, logdir: str | Path | None = None, filename: str | None = None,
                 workers_to_log: Workers = 0, *, aggregate: Aggregate = None):
        if logdir is not None and not isinstance(logdir, (str, Path)):
            raise TypeError(f"logdir must be a path, not {logdir!r}")
        self._given = None if logdir is None else Path(logdir).expanduser().absolute()
        self._options: dict[str, Any] = {"workers": _workers(workers_to_log)}
        if self._given is not None:
            self._options["logdir"] = str(self._given)
        if filename is not None:
            self._options["filename"] = str(filename)
        if aggregate is not None:
            self._options["aggregate"] = aggregate
        self._directory: Path | None = None  # of the run
        self._writer: _manta.Sink | None = None
        self._writers: dict[str, _manta.Sink] = {}  # by trial
        self._rows = 0

    @property
    def logdir(self) -> Path | None:
        """Where its files are: as it was told, or the directory of the run that it is used in."""
        return self._given or self._directory

    @property
    def log_path(self) -> Path | None:
        """Its file; the directory, where the names of files are not known beforehand."""
        name = self._options.get("filename", self._file)
        return self.logdir / name if self.logdir is not None and name else self.logdir

    def _attach(self, directory: str) -> None:
        """The sinks of a run in this directory write what it is to have."""
        self._directory = Path(directory)

    # --- called by hand, or by a subclass ---------------------------------------------------------

    def start_training(self, logdir: str | Path, config: Any = None, num_workers: int = 1,
                       **info: Any) -> None:
        self._directory = Path(logdir).expanduser().absolute()
        self._rows = 0
        self._writer = _manta.Sink(self._kind, self._options, str(self._directory),
                                   _config.described({} if config is None else config))

    def handle_result(self, results: list[dict[str, Any] | None], **info: Any) -> None:
        if self._writer is None:
            raise RuntimeError(f"{type(self).__name__}.start_training(logdir) comes first")
        rows = list(results)
        if (back := info.get("rewound_to")) is not None:
            self._writer.rewind(back)
        self._rows = info.get("iteration") or _iteration(rows) or self._rows + 1
        self._writer.put(self._rows, rows)

    def finish_training(self, error: bool = False, **info: Any) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    # --- the same of a trial of an experiment, by hand or by a subclass ---------------------------

    def log_trial_start(self, trial: Any) -> None:
        self._writers[trial.trial_id] = _manta.Sink(
            self._kind, self._options, str(trial.logdir), _config.described(trial.config or {}))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        if trial.trial_id not in self._writers:
            self.log_trial_start(trial)
        row = {k: v for k, v in result.items() if k != "config"}
        self._writers[trial.trial_id].put(result.get("training_iteration") or iteration, [row])

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        if (writer := self._writers.pop(trial.trial_id, None)) is not None:
            writer.close()

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        if trial.trial_id not in self._writers:
            self.log_trial_start(trial)

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any],
                        **info: Any) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.log_trial_end(trial)

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_writer": None, "_writers": {}}


@public
class JsonCallback(SinkCallback):
    """results.json: a list with an entry per iteration, a list of the reports of the workers, and
    valid JSON at any moment. results.jsonl: the same, a line per iteration. params.json: the
    config. workers_to_log: a rank, several, or "all" (None); aggregate: one report per iteration
    out of those, "mean", "min", "max" or "last"."""

    _kind, _file = "json", "results.json"


@public
class CSVCallback(SinkCallback):
    """progress.csv: a line per report; keys of nested dicts are joined with "/". A key that comes
    later becomes a column at the end. Reports of several workers have their rank in `_rank`."""

    _kind, _file = "csv", "progress.csv"


@public
class TensorboardCallback(SinkCallback):
    """Event files for TensorBoard: numbers as scalars, lists of numbers as histograms, bytes that
    are a PNG, JPEG or GIF as images, the config as text and as hyperparameters. With several
    workers each tag ends in /rank-N."""

    _kind = "tensorboard"

    def __init__(self, logdir: str | Path | None = None, worker_to_log: Workers = 0, *,
                 workers_to_log: Workers = 0, aggregate: Aggregate = None):
        super().__init__(logdir, None, worker_to_log if worker_to_log != 0 else workers_to_log,
                         aggregate=aggregate)


CSVLoggerCallback = CSVCallback
JsonLoggerCallback = JsonCallback
TBXLoggerCallback = TensorboardCallback


def _workers(given: Any) -> Any:
    """As libmanta takes it, which also checks the ranks."""
    if given is None or isinstance(given, str):
        return given or "all"
    if isinstance(given, bool):
        raise TypeError(f"workers_to_log must be a rank, a list of ranks, or \"all\", not {given}")
    try:
        return [operator.index(r) for r in given] if isinstance(given, Iterable) else (
            operator.index(given))
    except TypeError:
        raise TypeError(f"workers_to_log must be a rank, a list of ranks, or \"all\", "
                        f"not {given!r}") from None


def _iteration(rows: list[Any]) -> int | None:
    return next((i for row in rows if isinstance(row, dict)
                 and isinstance(i := row.get("_training_iteration"), int)), None)


# --- for a run ------------------------------------------------------------------------------------


def is_fed(callback: Any) -> bool:
    """Whether the process of the sinks does all that the callback is for."""
    return isinstance(callback, SinkCallback) and all(
        getattr(type(callback), name) is getattr(SinkCallback, name)
        for name in ("start_training", "handle_result", "finish_training"))


def is_fed_trials(callback: Any) -> bool:
    """The same of the trials of an experiment."""
    return isinstance(callback, SinkCallback) and all(
        getattr(type(callback), name) is getattr(SinkCallback, name)
        for name in dir(SinkCallback) if name.startswith(("log_trial_", "on_trial_")))


def is_called_of_trials(callback: Any) -> bool:
    """A sink of a subclass that changes what is written of a trial."""
    return isinstance(callback, SinkCallback) and not is_fed_trials(callback)


def of(callbacks: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """The sinks of a run with these callbacks, for libmanta."""
    return [(c._kind, c._options) for c in callbacks if is_fed(c)]

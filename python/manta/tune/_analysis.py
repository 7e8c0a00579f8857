# SPDX-License-Identifier: Apache-2.0
"""What an experiment has found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from manta import _manta
from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.result import Result
from manta._names import public

Row = dict[str, Any]

_STATES = {"pending": "PENDING", "running": "RUNNING", "paused": "PAUSED",
           "finished": "TERMINATED", "stopped": "TERMINATED", "failed": "ERROR"}


@public
class TuneError(RuntimeError):
    """An experiment that has trials which failed."""


def completed(row: Any, trial_id: str, config: Any) -> Row:
    """A row with the names that users of Ray know."""
    if not isinstance(row, dict):
        return {}
    iteration = row.get("_training_iteration")
    known = {"training_iteration": iteration, "trial_id": trial_id, "config": config,
             "timestamp": row.get("_timestamp"), "time_this_iter_s": row.get("_time_this_iter_s")}
    return {**{k: v for k, v in known.items() if v is not None}, **row}


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"{what} needs pandas\nhint: pip install pandas; .results has "
                                  f"the same as dicts", name="pandas") from None
    return pandas


def flat(row: Row, above: str = "") -> Row:
    """Nested dicts as "outer/inner"."""
    out: Row = {}
    for key, value in row.items():
        if isinstance(value, dict) and value:
            out |= flat(value, f"{above}{key}/")
        else:
            out[f"{above}{key}"] = value
    return out


class Trial:
    """One config of an experiment, as it was when it was asked for."""

    def __init__(self, tune: _manta.Tune, number: int, trust: bool = False):
        """trust: its checkpoints may be unpickled."""
        self._tune, self.number, self._trust = tune, number, trust
        self._facts = tune.trial(number)
        self.trial_id = f"{number:05}"

    @property
    def config(self) -> Any:
        return self._facts["config"]

    evaluated_params = config

    @property
    def status(self) -> str:
        """PENDING, RUNNING, PAUSED, TERMINATED or ERROR."""
        return _STATES[self._facts["state"]]

    @property
    def last_result(self) -> Row:
        """Its newest report."""
        return completed(self._facts["last"], self.trial_id, self.config)

    @property
    def best_result(self) -> Row:
        """The report with the best metric."""
        return completed(self._facts["best"], self.trial_id, self.config)

    @property
    def logdir(self) -> str:
        directory: str = self._facts["dir"]
        return directory

    local_path = path = logdir

    @property
    def error_msg(self) -> str | None:
        """What its last failure said, or None."""
        return self._facts["message"] or None

    @property
    def num_failures(self) -> int:
        failures: int = self._facts["failures"]
        return failures

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Its newest checkpoint on disk."""
        path = self._tune.checkpoint_dir(self.number)
        if path is None:
            return None
        return Checkpoint._of(_manta.open_checkpoint(path, False), Path(path).parent, self._trust,
                              Path(path))

    @property
    def rows(self) -> list[Row]:
        """All its reports."""
        return [completed(r, self.trial_id, self.config) for r in self._tune.rows(self.number)]

    def metric_analysis(self, metric: str) -> Row:
        """Lowest, highest and last value of a metric."""
        values = [r[metric] for r in self.rows if metric in r]
        return {"min": min(values), "max": max(values), "last": values[-1]} if values else {}

    def __str__(self) -> str:
        return Path(self.logdir).name

    def __repr__(self) -> str:
        return f"Trial({self}, {self.status})"


class ExperimentAnalysis:
    """The trials of an experiment, which is running or over: what tune.run() gives, and by its
    directory any other. metric and mode are those of tune.run unless others are given."""

    def __init__(self, experiment_checkpoint_path: str | os.PathLike[str] | None = None,
                 default_metric: str | None = None, default_mode: str | None = None, *,
                 _tune: _manta.Tune | None = None):
        self._tune = _tune if _tune is not None else _manta.tune_open(
            None if experiment_checkpoint_path is None else os.fspath(experiment_checkpoint_path))
        self._own = _tune is not None  # run here: what it holds no stranger has written
        said = self._tune.info()
        self.default_metric = default_metric or said.get("metric")
        self.default_mode = default_mode or ("max" if said.get("maximize") else "min")
        self._all: list[Trial] | None = None

    # --- trials -----------------------------------------------------------------------------------

    @property
    def experiment_path(self) -> str:
        return self._tune.dir()

    @property
    def trials(self) -> list[Trial]:
        """All of them, in the order in which they were made."""
        if self._all is None:
            made = [Trial(self._tune, i, self._own) for i in range(self._tune.count())]
            if any(t.status in ("PENDING", "RUNNING", "PAUSED") for t in made):
                return made  # they will be others
            self._all = made
        return self._all

    def __len__(self) -> int:
        return self._tune.count()

    def _by(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        metric = metric or self.default_metric
        if metric is None:
            raise ValueError("there is no metric to compare by\nhint: tune.run(metric=…, mode=…), "
                             "or name it here")
        mode = mode or self.default_mode
        if mode not in ("min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}')
        return "_training_iteration" if metric == "training_iteration" else metric, mode

    def get_best_trial(self, metric: str | None = None, mode: str | None = None,
                       scope: str = "last", filter_nan_and_inf: bool = True) -> Trial | None:
        """By the last report of each; scope="all": by the best of all its reports."""
        if scope not in ("last", "all"):
            raise ValueError(f'scope must be "last" or "all", not {scope!r}')
        name, mode = self._by(metric, mode)
        if self._tune.count() == 0:
            return None
        try:
            number = self._tune.best(name, mode == "max", scope == "all")
            return Trial(self._tune, number, self._own)
        except FileNotFoundError as e:  # no trial has reported it
            raise ValueError(str(e)) from None

    def get_best_config(self, metric: str | None = None, mode: str | None = None,
                        scope: str = "last") -> Any:
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None,
                        scope: str = "last") -> str | None:
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.logdir

    def get_best_checkpoint(self, trial: Trial | None = None, metric: str | None = None,
                            mode: str | None = None) -> Checkpoint | None:
        """The newest checkpoint of a trial, or of the best one."""
        chosen = trial or self.get_best_trial(metric, mode)
        return None if chosen is None else chosen.checkpoint

    def get_last_checkpoint(self, trial: Trial | None = None, metric: str | None = None,
                            mode: str | None = None) -> Checkpoint | None:
        return self.get_best_checkpoint(trial, metric, mode)

    best_trial = property(get_best_trial, doc="By the metric of tune.run.")
    best_config = property(get_best_config, doc="The config of the best trial.")
    best_logdir = property(get_best_logdir, doc="The directory of the best trial.")
    best_checkpoint = property(get_best_checkpoint, doc="The newest checkpoint of the best trial.")

    @property
    def best_result(self) -> Row:
        """The last report of the best trial."""
        best = self.get_best_trial()
        return {} if best is None else best.last_result

    @property
    def best_dataframe(self) -> Any:
        best = self.get_best_trial()
        return None if best is None else _pandas("best_dataframe").DataFrame(
            [flat(r) for r in best.rows])

    # --- all of it --------------------------------------------------------------------------------

    @property
    def results(self) -> dict[str, Row]:
        """The last report of every trial, by its id."""
        return {t.trial_id: t.last_result for t in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """One row for each trial: its last report, or with a metric its best one; config/…, logdir
        and trial_id besides."""
        rows = []
        for t in self.trials:
            row = t.last_result
            if metric is not None and (found := [r for r in t.rows if metric in r]):
                better = max if (mode or self.default_mode) == "max" else min
                row = better(found, key=lambda r: r[metric])
            rows.append({**flat({k: v for k, v in row.items() if k != "config"}),
                         **flat({"config": t.config}), "logdir": t.logdir,
                         "trial_id": t.trial_id})
        return _pandas("dataframe()").DataFrame(rows)

    @property
    def results_df(self) -> Any:
        return self.dataframe().set_index("trial_id")

    best_result_df = property(lambda self: self.results_df.loc[[self.best_trial.trial_id]])

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """All reports of every trial, by its directory."""
        pandas = _pandas("trial_dataframes")
        return {t.logdir: pandas.DataFrame([flat(r) for r in t.rows]) for t in self.trials}

    fetch_trial_dataframes = trial_dataframes

    def get_all_configs(self) -> dict[str, Any]:
        return {t.logdir: t.config for t in self.trials}

    def stats(self) -> dict[str, Any]:
        """How many trials are in which state, and what the experiment was asked for."""
        counts: dict[str, int] = {}
        for t in self.trials:
            counts[t.status] = counts.get(t.status, 0) + 1
        return {"trials": counts, "experiment": self.experiment_path, **self._tune.info()}

    def runner_data(self) -> dict[str, Any]:
        return self.stats()

    def failed(self) -> list[Trial]:
        return [t for t in self.trials if t.status == "ERROR"]

    def __repr__(self) -> str:
        return f"ExperimentAnalysis({self.experiment_path}, {len(self)} trials)"


class ResultGrid:
    """What Tuner.fit() gives: a Result for each trial."""

    def __init__(self, analysis: ExperimentAnalysis):
        self._analysis = analysis

    @property
    def experiment_path(self) -> str:
        return self._analysis.experiment_path

    def __len__(self) -> int:
        return len(self._analysis)

    def __getitem__(self, i: int) -> Result:
        if not -len(self) <= i < len(self):
            raise IndexError(f"there are {len(self)} trials")
        return self._result(self._analysis.trials[i])

    def __iter__(self) -> Iterator[Result]:
        return (self._result(t) for t in self._analysis.trials)

    def _result(self, t: Trial) -> Result:
        error = TuneError(t.error_msg) if t.status == "ERROR" else None
        kept = t.checkpoint
        rows = t.rows
        return Result(t.last_result, kept, error, t.logdir,
                      [] if kept is None else [(kept, t.last_result)], t.config, rows)

    @property
    def errors(self) -> list[Exception]:
        return [r.error for r in self if r.error is not None]

    @property
    def num_errors(self) -> int:
        return len(self._analysis.failed())

    @property
    def num_terminated(self) -> int:
        return sum(t.status == "TERMINATED" for t in self._analysis.trials)

    def get_best_result(self, metric: str | None = None, mode: str | None = None,
                        scope: str = "last", filter_nan_and_inf: bool = True) -> Result:
        best = self._analysis.get_best_trial(metric, mode, scope)
        if best is None:
            _nothing()
        return self._result(best)

    def get_dataframe(self, filter_metric: str | None = None,
                      filter_mode: str | None = None) -> Any:
        return self._analysis.dataframe(filter_metric, filter_mode)

    def __repr__(self) -> str:
        return f"ResultGrid({self.experiment_path}, {len(self)} trials)"


def _nothing() -> NoReturn:
    raise RuntimeError("this experiment has no trial")

# SPDX-License-Identifier: Apache-2.0
"""What an experiment has found."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from manta import _manta
from manta._front.fit.checkpoint import Checkpoint
from manta._front.fit.result import Result
from manta._names import public
from manta.tune._naming import tag_of
from manta.tune._place import ERROR_FILE, located

Row = dict[str, Any]
_SCOPES = {"last": 1, "all": 0, "avg": 0, "last-5-avg": 5, "last-10-avg": 10}  # newest; 0: all

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


_KNOWN = frozenset(("training_iteration", "trial_id", "config", "timestamp", "time_this_iter_s",
                    "time_total_s", "done", "date", "pid", "hostname", "iterations_since_restore",
                    "timesteps_total", "should_checkpoint"))


def reported(names: Iterable[str]) -> list[str]:
    """Those of a flat row that the trial has reported itself."""
    return [k for k in names if not k.startswith(("_", "config/")) and k not in _KNOWN]


def value_of(row: Row, metric: str) -> Any:
    """What a row has of a metric, "outer/inner" if it is in a dict; None: nothing."""
    return row[metric] if metric in row else flat(row).get(metric) if "/" in metric else None


class Trial:
    """One config of an experiment, as it was when it was asked for."""

    PENDING, RUNNING, PAUSED = "PENDING", "RUNNING", "PAUSED"
    TERMINATED, ERROR = "TERMINATED", "ERROR"

    def __init__(self, tune: _manta.Tune, number: int, trust: bool = False,
                 creator: Callable[[Any], str] | None = None):
        """trust: its checkpoints may be unpickled. creator: of its name."""
        self._tune, self.number, self._trust, self._creator = tune, number, trust, creator
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
    def iteration(self) -> int:
        """How many reports it has made."""
        iteration: int = self._facts["iteration"]
        return iteration

    @property
    def time_total_s(self) -> float:
        """How long it has trained, from report to report."""
        trained: float = self._facts["trained"]
        return trained

    @property
    def last_result(self) -> Row:
        """Its newest report."""
        row = completed(self._facts["last"], self.trial_id, self.config)
        return row if not row or "time_total_s" in row else {**row,
                                                             "time_total_s": self.time_total_s}

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
    def error_file(self) -> str | None:
        """The file that has the traceback of its last failure, if it raised something."""
        path = Path(self.logdir, ERROR_FILE)
        return str(path) if self.error_msg and path.is_file() else None

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
    def checkpoints(self) -> list[tuple[Checkpoint, Row]]:
        """All of its checkpoints on disk, each with the report that it belongs to."""
        rows = {r["training_iteration"]: r for r in self.rows}
        found = []
        for path in sorted(Path(self.logdir, "checkpoints").glob("*/manifest.json")):
            handle = _manta.open_checkpoint(str(path.parent), False)
            one = Checkpoint._of(handle, path.parent.parent, self._trust, path.parent)
            found.append((handle.iteration(), (one, rows.get(handle.iteration(), {}))))
        return [pair for _, pair in sorted(found, key=lambda f: f[0])]

    @property
    def rows(self) -> list[Row]:
        """All its reports."""
        total, out = 0.0, []
        for r in self._tune.rows(self.number):
            row = completed(r, self.trial_id, self.config)
            total += row.get("time_this_iter_s") or 0
            out.append({"time_total_s": total, **row})
        return out

    def metric_analysis(self, metric: str) -> Row:
        """Lowest, highest and last value of a metric."""
        values = [v for r in self.rows if (v := value_of(r, metric)) is not None]
        return {"min": min(values), "max": max(values), "last": values[-1]} if values else {}

    @property
    def trainable_name(self) -> str:
        """The name of the experiment."""
        return Path(self.logdir).parent.name

    @property
    def experiment_tag(self) -> str:
        """The number, and the config in a line."""
        return tag_of(self.number, self.config)

    def is_finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    def __str__(self) -> str:
        if self._creator is not None:
            creator, self._creator = self._creator, None
            self._named = str(creator(self))
        return getattr(self, "_named", Path(self.logdir).name)

    def __repr__(self) -> str:
        return f"Trial({self}, {self.status})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and self.logdir == other.logdir

    def __hash__(self) -> int:
        return hash(self.logdir)


def _at(path: str | os.PathLike[str] | None) -> str | None:
    """The experiment that is meant; None: the newest."""
    found = None if path is None else located(path)
    return os.fspath(found or path) if path is not None else None



class ExperimentAnalysis:
    """The trials of an experiment, which is running or over: what tune.run() gives, and by its
    directory any other. metric and mode are those of tune.run unless others are given."""

    def __init__(self, experiment_checkpoint_path: str | os.PathLike[str] | None = None,
                 default_metric: str | None = None, default_mode: str | None = None, *,
                 _tune: _manta.Tune | None = None,
                 _creator: Callable[[Any], str] | None = None):
        self._tune = _tune if _tune is not None else _manta.tune_open(_at(
            experiment_checkpoint_path))
        self._creator = _creator  # of the names of trials
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
            made = [self._trial(i) for i in range(self._tune.count())]
            if any(t.status in ("PENDING", "RUNNING", "PAUSED") for t in made):
                return made  # they will be others
            self._all = made
        return self._all

    def _trial(self, number: int) -> Trial:
        return Trial(self._tune, number, self._own, self._creator)

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
        """By the last report of each; scope="all": by the best of all its reports; "avg",
        "last-5-avg", "last-10-avg": by the mean of all, or of the newest."""
        if scope not in _SCOPES:
            raise ValueError(f"scope must be one of {', '.join(_SCOPES)}, not {scope!r}")
        name, mode = self._by(metric, mode)
        if self._tune.count() == 0:
            return None
        if scope.endswith("avg"):
            return self._best_mean(metric or self.default_metric or "", mode, _SCOPES[scope])
        try:
            return self._trial(self._tune.best(name, mode == "max", scope == "all"))
        except FileNotFoundError as e:  # no trial has reported it
            raise ValueError(f"{e}{self._why_failed()}") from None

    def _why_failed(self) -> str:
        failed = self.failed()
        return "" if not failed else (f"\n{len(failed)} of {len(self)} trials failed, the first "
                                      f"with: {failed[0].error_msg}")

    def _best_mean(self, metric: str, mode: str, newest: int) -> Trial:
        means = []
        for t in self.trials:
            values = [v for r in t.rows if isinstance(v := value_of(r, metric), (int, float))]
            if values and math.isfinite(mean := statistics.fmean(values[-newest:])):
                means.append((-mean if mode == "max" else mean, t))
        if not means:
            raise ValueError(f"no trial has reported {metric!r} as a number")
        return min(means, key=lambda m: m[0])[1]

    def get_best_config(self, metric: str | None = None, mode: str | None = None,
                        scope: str = "last") -> Any:
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None,
                        scope: str = "last") -> str | None:
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.logdir

    def get_best_checkpoint(self, trial: Trial | None = None, metric: str | None = None,
                            mode: str | None = None, return_path: bool = False) -> Any:
        """Of the checkpoints that a trial, or the best one, has on disk: the one whose report is
        best; without a metric the newest. return_path: its directory."""
        found = self._best_checkpoint(trial, metric, mode)
        return found.path if return_path and found is not None else found

    def _best_checkpoint(self, trial: Trial | None, metric: str | None,
                         mode: str | None) -> Checkpoint | None:
        chosen = trial or self.get_best_trial(metric, mode)
        metric = metric or self.default_metric
        if chosen is None or metric is None:
            return None if chosen is None else chosen.checkpoint
        sign = -1 if (mode or self.default_mode) == "max" else 1
        rated = [(math.isinf(v), sign * v, -i, one)
                 for i, (one, row) in enumerate(chosen.checkpoints)
                 if isinstance(v := value_of(row, metric), (int, float)) and v == v]
        return min(rated, key=lambda r: r[:3])[3] if rated else chosen.checkpoint

    def get_last_checkpoint(self, trial: Trial | None = None, metric: str | None = None,
                            mode: str | None = None) -> Checkpoint | None:
        """The newest checkpoint of a trial, or of the best one."""
        chosen = trial or self.get_best_trial(metric, mode)
        return None if chosen is None else chosen.checkpoint

    def get_trial_checkpoints_paths(self, trial: Trial | str,
                                    metric: str | None = None) -> list[tuple[str, Any]]:
        """The paths of its checkpoints on disk, each with the value of a metric."""
        name = metric or self.default_metric or "training_iteration"
        chosen = trial if isinstance(trial, Trial) else next(
            t for t in self.trials if t.logdir == str(trial))
        return [(one.path, value_of(row, name)) for one, row in chosen.checkpoints]

    best_trial = property(get_best_trial, doc="By the metric of tune.run.")
    best_config = property(get_best_config, doc="The config of the best trial.")
    best_logdir = property(get_best_logdir, doc="The directory of the best trial.")
    best_checkpoint = property(get_best_checkpoint, doc="The best checkpoint of the best trial.")

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
        if mode not in (None, "min", "max"):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}')
        rows = []
        for t in self.trials:
            row = t.last_result
            rated = [] if metric is None else [
                (v, r) for r in t.rows if (v := value_of(r, metric)) is not None]
            if rated:
                better = max if (mode or self.default_mode) == "max" else min
                row = better(rated, key=lambda pair: pair[0])[1]
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

    def get_all_configs(self, prefix: bool = False) -> dict[str, Any]:
        """By the directory of the trial; prefix: flat, as config/…"""
        return {t.logdir: flat({"config": t.config}) if prefix else t.config for t in self.trials}

    def stats(self) -> dict[str, Any]:
        """How many trials are in which state, when the experiment began (start_time) and its newest
        report came (timestamp), and what it was asked for."""
        counts: dict[str, int] = {}
        for t in self.trials:
            counts[t.status] = counts.get(t.status, 0) + 1
        rows = [t.last_result.get("timestamp") for t in self.trials]
        lock = Path(self.experiment_path, "experiment", ".lock")  # made with it
        return {"trials": counts, "experiment": self.experiment_path,
                "start_time": lock.stat().st_mtime if lock.exists() else None,
                "timestamp": max((t for t in rows if t is not None), default=None),
                **self._tune.info()}

    def set_filetype(self, file_type: str | None = None) -> None:
        """Taken: what trials reported is in the log of the experiment, whatever files there are."""

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
        return Result(t.last_result, t.checkpoint, error, t.logdir, t.checkpoints, t.config,
                      t.rows)

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
        """As get_best_trial() of ExperimentAnalysis; of one trial also without a metric."""
        if len(self) == 1 and metric is None and self._analysis.default_metric is None:
            return self[0]
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

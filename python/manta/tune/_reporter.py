# SPDX-License-Identifier: Apache-2.0
"""progress_reporter= of tune.run: tables with the columns that somebody asks for."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from manta._runtime import display as _display
from manta.tune._view import Columns, Progress


class ProgressReporter:
    """Shows how an experiment goes. One of your own overrides these."""

    def setup(self, start_time: float | None = None, total_samples: int | None = None,
              metric: str | None = None, mode: str | None = None, **info: Any) -> None:
        """The experiment begins."""

    def should_report(self, trials: Any, done: bool = False) -> bool:
        """Whether report is called now: asked when something has happened, and in the end."""
        return True

    def report(self, trials: Any, done: bool, *sys_info: Any) -> None:
        """Shows it."""
        raise NotImplementedError(f"{type(self).__name__} has no report(self, trials, done, "
                                  f"*sys_info)")


class _TableReporter(ProgressReporter):
    def __init__(self, *, metric_columns: Any = None, parameter_columns: Any = None,
                 total_samples: int | None = None, max_progress_rows: int = 20,
                 max_error_rows: int = 20, max_column_length: int = 20,
                 max_report_frequency: float = 5, infer_limit: int = 3,
                 print_intermediate_tables: bool | None = None, metric: str | None = None,
                 mode: str | None = None, sort_by_metric: bool = False):
        """Columns are lists of names, or dicts of names and what stands above them."""
        self._columns = Columns(_named(metric_columns), _named(parameter_columns),
                                max_progress_rows, max_column_length, infer_limit,
                                sort_by_metric)
        self._every, self._between = max_report_frequency, print_intermediate_tables
        self._shown = 0.0
        self._progress: Progress | None = None

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        self._columns.metrics[metric] = representation or metric

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        self._columns.parameters[parameter] = representation or parameter

    def follow(self, progress: Progress) -> None:
        """What the tables are made of; before setup."""
        self._progress = progress

    def should_report(self, trials: Any, done: bool = False) -> bool:
        now = time.monotonic()
        if not done and (self._between is False or now - self._shown < self._every):
            return False
        self._shown = now
        return True

    def report(self, trials: Any, done: bool, *sys_info: Any) -> None:
        if self._progress is None:
            raise RuntimeError("a reporter shows an experiment: tune.run(…, progress_reporter=…)")
        self._show(self._progress, done)

    def _show(self, progress: Progress, done: bool) -> None:
        raise NotImplementedError


class CLIReporter(_TableReporter):
    """Prints a table to the standard output, at most every max_report_frequency seconds."""

    def _show(self, progress: Progress, done: bool) -> None:
        wide = shutil.get_terminal_size((160, 50)).columns if sys.stdout.isatty() else 1000
        text = progress.view(self._columns).text(wide, self._columns.rows + 6)
        print(text, end="\n\n", flush=True)


class JupyterNotebookReporter(_TableReporter):
    """A table in the cell of a notebook, which is replaced by the next one. Elsewhere it prints."""

    def __init__(self, overwrite: bool = True, **options: Any):
        super().__init__(**options)
        self._page, self._overwrite = _display.Page(), overwrite

    def _show(self, progress: Progress, done: bool) -> None:
        view = progress.view(self._columns)
        if not _display.is_notebook():
            print(view.text(1000, self._columns.rows + 6), end="\n\n", flush=True)
            return
        if not self._overwrite:
            self._page = _display.Page()
        self._page.write(_display.HTML, view.html())


def _named(given: Any) -> dict[str, str]:
    return dict(given) if isinstance(given, dict) else {k: k for k in given or ()}


class Shown:
    """A reporter, asked after events in the place of the live table."""

    follows = True  # each of them

    def __init__(self, reporter: ProgressReporter, progress: Progress, trials: Any,
                 **info: Any):
        self._reporter, self._trials = reporter, trials
        if isinstance(reporter, _TableReporter):
            reporter.follow(progress)
        reporter.setup(start_time=time.time(), **info)

    def look(self) -> None:
        self._ask(False)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def end(self) -> None:
        self._ask(True)

    def _ask(self, done: bool) -> None:
        if self._reporter.should_report(self._trials, done=done):
            self._reporter.report(self._trials, done)


def checked(given: Any) -> ProgressReporter | None:
    if given is None or isinstance(given, ProgressReporter):
        return given
    if isinstance(given, type):
        raise TypeError(f"progress_reporter must be an object, not the class {given.__name__}\n"
                        f"hint: progress_reporter={given.__name__}(…)")
    raise TypeError(f"progress_reporter must be a ProgressReporter, not {given!r}")

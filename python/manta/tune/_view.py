# SPDX-License-Identifier: Apache-2.0
"""An experiment at one moment, as a table: how many trials there are in which state, the best so
far, those that run, and some of the others."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manta import _manta
from manta.tune._analysis import Trial, flat, reported
from manta.tune._callback import BEGAN, COPIED, ENDED, FAILED, PAUSED

STATES = ("pending", "running", "paused", "finished", "stopped", "failed")
_METRICS, _PARAMETERS = 4, 6  # columns, where nobody names them
_LONGEST = 20  # characters of a cell


@dataclass
class Columns:
    """What is shown of a trial: names of metrics and parameters, with what stands above them."""
    metrics: dict[str, str] = field(default_factory=dict)  # empty: those that are reported
    parameters: dict[str, str] = field(default_factory=dict)  # empty: those that differ
    rows: int = 20
    longest: int = _LONGEST
    inferred: int = _METRICS - 1  # metrics besides that of the experiment
    by_metric: bool = False  # the best first


@dataclass
class View:
    """What is shown."""
    summary: str
    best: str
    head: list[str]
    rows: list[list[str]]
    hidden: int  # further trials
    parameters: int  # columns of them, behind those of name and status

    def text(self, width: int, height: int) -> str:
        lines = [self.summary, *([self.best] if self.best else [])]
        room = max(0, height - len(lines) - 3)
        rows = self.rows[:room]
        shown = self._fitting(rows, width - 1)
        if rows:
            lines += _aligned([[line[i] for i in shown] for line in (self.head, *rows)])
        left = [(self.hidden + len(self.rows) - len(rows), "trial"),
                (len(self.head) - len(shown) if rows else 0, "column")]
        if any(n for n, _ in left):
            lines.append("… and " + ", ".join(f"{n} more {what}{'s' if n > 1 else ''}"
                                              for n, what in left if n))
        return "\n".join(x if len(x) < width else f"{x[:width - 2]}…" for x in lines)

    def _fitting(self, rows: list[list[str]], width: int) -> list[int]:
        """The columns that fit: a number that is cut would be another. After the name, the status
        and the first metric come parameters; the time is the first to go."""
        wide = [max(map(len, column)) + 2 for column in zip(self.head, *rows)]
        end = 2 + self.parameters  # iter and time are there
        order = [0, 1, *range(end + 2, len(wide))[:1], end, *range(2, end),
                 *range(end + 3, len(wide)), end + 1]
        shown: list[int] = []
        for i in order:
            if sum(wide[k] for k in (*shown, i)) - 2 <= width:
                shown.append(i)
        return sorted(shown)

    def html(self) -> str:
        def line(cells: list[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"
        more = f"<div>… and {self.hidden} more</div>" if self.hidden else ""
        table = line(self.head, "th") + "".join(line(r, "td") for r in self.rows)
        return (f"<div>{html.escape(self.summary)}</div><div>{html.escape(self.best)}</div>"
                f"<table>{table if self.rows else ''}</table>{more}")


class Progress:
    """Follows an experiment event by event, so that a view costs as much as it shows, however many
    trials there are."""

    def __init__(self, tune: _manta.Tune, metric: str | None, mode: str, varied: Sequence[str],
                 name: Any = str, total: int = 0):
        """total: how many trials there will be; 0: that is not known."""
        self._total = total
        self._tune, self._metric, self._mode, self._varied = tune, metric, mode, list(varied)
        self._name = name  # of a trial
        self._running: dict[int, None] = {}
        self._ended: list[int] = []
        self._over = False
        self._began = time.monotonic()

    def take(self, kind: int, trial: int) -> None:
        """An event."""
        if kind == BEGAN:
            self._running[trial] = None
        elif kind in (PAUSED, COPIED, FAILED, ENDED):
            self._running.pop(trial, None)
        if kind == ENDED:
            self._ended = [*self._ended[-99:], trial]

    def end(self) -> None:
        """No further trial begins."""
        self._over = True

    def view(self, columns: Columns) -> View:
        best = self._best()
        order = dict.fromkeys([*list(self._running)[:columns.rows], *([] if best is None else
                                                                       [best]), *self._ended[::-1]])
        shown = [Trial(self._tune, n) for n in list(order)[:columns.rows]]
        if columns.by_metric and self._metric:
            shown.sort(key=lambda t: self._rank(flat(t.last_result).get(self._metric or "")))
        head, cells, parameters = self._cells(shown, columns)
        return View(self._summary(), self._best_line(best), head, cells,
                    self._tune.count() - len(shown), parameters)

    def _summary(self) -> str:
        made = self._tune.count()
        counts = [self._tune.count(i) for i in range(len(STATES))]
        counts[0] += max(0, self._total - made) if not self._over else 0
        said = ", ".join(f"{n} {name}" for n, name in zip(counts, STATES) if n)
        noun = "trial" if sum(counts) == 1 else "trials"
        return (f"{sum(counts)} {noun} ({said or 'none yet'}), "
                f"{time.monotonic() - self._began:.0f} s")

    def _best(self) -> int | None:
        if self._metric is None:
            return None
        try:
            return self._tune.best(self._metric, self._mode == "max", False)
        except FileNotFoundError:  # no trial has reported it
            return None

    def _best_line(self, number: int | None) -> str:
        if number is None:
            return ""
        best = Trial(self._tune, number)
        config = ", ".join(f"{k}={v if v is None else short(v)}"
                           for k, v in flat(best.config).items())
        value = flat(best.last_result).get(self._metric or "")
        said = f"best {self._metric} {short(value)} (trial {number})"
        return f"{said}: {config}" if config else said

    def _rank(self, value: Any) -> float:
        if not isinstance(value, (int, float)) or value != value:
            return float("inf")
        return -value if self._mode == "max" else value

    def _cells(self, shown: list[Trial],
               columns: Columns) -> tuple[list[str], list[list[str]], int]:
        configs, last = [flat(t.config) for t in shown], [flat(t.last_result) for t in shown]
        parameters = columns.parameters or {
            k: k for k in (self._varied or _keys(configs))[:_PARAMETERS]}
        metrics = columns.metrics or {k: k for k in self._reported(last, columns.inferred)}
        head = ["trial", "status", *parameters.values(), "iter", "time (s)", *metrics.values()]
        rows = [[self._name(t), t.status, *(short(c.get(k), columns.longest) for k in parameters),
                 str(t.iteration or ""), f"{t.time_total_s:.4g}" if t.iteration else "",
                 *(short(r.get(k), columns.longest) for k in metrics)]
                for t, c, r in zip(shown, configs, last)]
        return head, rows, len(parameters)

    def _reported(self, last: list[dict[str, Any]], others: int) -> list[str]:
        own = reported(_keys(last))
        first = [self._metric] if self._metric in own and self._metric else []
        return [*first, *(k for k in own if k not in first)][:1 + others]


def _keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All of them, in the order in which they come."""
    return list(dict.fromkeys(k for row in rows for k in row))


def _aligned(lines: list[list[str]]) -> list[str]:
    """Columns as wide as their widest cell, numbers to the right."""
    wide = [max(map(len, column)) for column in zip(*lines)]
    right = [all(_is_number(cell) for cell in column[1:]) for column in zip(*lines)]
    return ["  ".join(cell.rjust(n) if r else cell.ljust(n)
                      for cell, n, r in zip(line, wide, right)).rstrip() for line in lines]


def _is_number(cell: str) -> bool:
    try:
        float(cell or "0")
    except ValueError:
        return False
    return True


def short(value: Any, longest: int = _LONGEST) -> str:
    """A value in a few characters."""
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value).replace("\n", " ")
    return text if len(text) <= longest else text[:longest - 1] + "…"

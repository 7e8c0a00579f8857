# SPDX-License-Identifier: Apache-2.0
"""What an experiment shows of itself while it runs, where nobody has asked for another reporter."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import IO

from manta._runtime import display as _display
from manta.tune._view import Columns, Progress

_LIVE_S, _PLAIN_S = 0.5, 5.0


class Table:
    """Redrawn in place on a terminal, replaced in the cell of a notebook; elsewhere a line now and
    then."""

    def __init__(self, progress: Progress, verbose: int, out: IO[str] | None = None):
        self._progress, self._verbose = progress, verbose
        self._out = out or sys.stderr
        self._page = _display.Page() if out is None and _display.is_notebook() else None
        self._live = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self.follows = verbose > 0 and (self._live or self._page is not None)  # trials one by one
        self._every = _LIVE_S if self.follows else _PLAIN_S
        self._shown = time.monotonic()
        self._lines = 0

    def look(self) -> None:
        """Called for every event: shows something if it is time to."""
        now = time.monotonic()
        if self._verbose > 0 and now - self._shown >= self._every:
            self._shown = now
            self._show()

    def say(self, text: str) -> None:
        """What a trial has printed: above the table, or where it is looked for in a pipe."""
        if self._live and self._lines:
            self._out.write(f"\x1b[{self._lines}F\x1b[J")
            self._out.flush()
            self._lines = 0
        print(text, flush=True)

    def end(self) -> None:
        """The last state, which stays."""
        if self._verbose > 0:
            self._show()
            self._lines = 0

    def _show(self) -> None:
        view = self._progress.view(Columns())
        if self._page is not None:
            self._page.write(_display.HTML, view.html())
        elif self._live:
            size = shutil.get_terminal_size()
            text = view.text(size.columns, size.lines)
            back = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
            self._out.write(f"{back}{text}\n")
            self._lines = text.count("\n") + 1
        else:
            best = f"; {view.best}" if view.best else ""
            self._out.write(f"manta: {view.summary}{best}\n")
        self._out.flush()

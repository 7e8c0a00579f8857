# SPDX-License-Identifier: Apache-2.0
"""What an experiment shows of itself while it runs: how many trials, and the best so far."""

from __future__ import annotations

import os
import sys
import time
from typing import IO, Any

from manta import _manta

_LIVE_S, _PLAIN_S = 0.5, 5.0
_STATES = ("pending", "running", "paused", "finished", "stopped", "failed")


class Table:
    """Redrawn in place on a terminal; elsewhere a line now and then."""

    def __init__(self, tune: _manta.Tune, metric: str | None, mode: str, verbose: int,
                 out: IO[str] | None = None):
        self._tune, self._metric, self._mode, self._verbose = tune, metric, mode, verbose
        self._out = out or sys.stderr
        self._live = verbose > 0 and self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._began = self._shown = time.monotonic()
        self._lines = 0

    def look(self) -> None:
        """Called for every event: shows something if it is time to."""
        now = time.monotonic()
        if self._verbose > 0 and now - self._shown >= (_LIVE_S if self._live else _PLAIN_S):
            self._shown = now
            self._show()

    def end(self) -> None:
        """The last state, which stays."""
        if self._verbose > 0:
            self._show()
            self._lines = 0

    def _show(self) -> None:
        text = self._text()
        if self._live:
            lines = text.count("\n") + 1
            back = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
            self._out.write(f"{back}{text}\n")
            self._lines = lines
        else:
            self._out.write(f"manta: {text.splitlines()[0]}\n")
        self._out.flush()

    def _text(self) -> str:
        counts = [self._tune.count(i) for i in range(len(_STATES))]
        said = ", ".join(f"{n} {name}" for n, name in zip(counts, _STATES) if n)
        lines = [f"{self._tune.count()} trials ({said or 'none yet'}), "
                 f"{time.monotonic() - self._began:.0f} s{self._best()}"]
        return "\n".join(lines)

    def _best(self) -> str:
        if self._metric is None:
            return ""
        try:
            number = self._tune.best(self._metric, self._mode == "max", False)
        except FileNotFoundError:  # no trial has reported it
            return ""
        facts = self._tune.trial(number)
        value = (facts["last"] or {}).get(self._metric)
        return f"; best {self._metric} {_short(value)}: {_config(facts['config'])}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _config(config: Any) -> str:
    if not isinstance(config, dict):
        return str(config)
    text = ", ".join(f"{k}={_short(v)}" for k, v in config.items())
    return text if len(text) <= 100 else text[:97] + "..."

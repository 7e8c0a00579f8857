# SPDX-License-Identifier: Apache-2.0
"""The driver's sys.stdout and sys.stderr, as far as workers' output goes there."""

from __future__ import annotations

import sys
from typing import Any

PLAIN, LINE, TERMINAL = range(3)  # manta_display_kind
HTML = 3  # the stream MANTA_DISPLAY_HTML


def _kind(stream: Any) -> int:
    if type(stream).__module__.startswith("ipykernel"):  # a cell of a notebook
        return LINE
    try:
        return TERMINAL if stream.isatty() else PLAIN
    except (AttributeError, OSError, ValueError):  # None, or closed
        return PLAIN


def kinds() -> tuple[int, int]:
    """What sys.stdout and sys.stderr are now: each is judged by itself."""
    return _kind(sys.stdout), _kind(sys.stderr)


def is_notebook() -> bool:
    """Whether a cell can show HTML that changes."""
    return _kind(sys.stderr) == LINE and "IPython" in sys.modules


class Page:
    """The output of one cell: text, and HTML that replaces what it was before."""

    def __init__(self) -> None:
        self._shown: Any = None

    def write(self, stream: int, text: str) -> None:
        if stream != HTML:
            write(stream, text)
            return
        data = {"text/html": text, "text/plain": "(progress of the run)"}
        if self._shown is not None:
            self._shown.update(data, raw=True)
            return
        import IPython.display as ipython
        show: Any = ipython.display
        self._shown = show(data, raw=True, display_id=True)


def write(stream: int, text: str) -> None:
    """To sys.stdout (1) or sys.stderr (2), whatever they are at this moment."""
    to = sys.stdout if stream == 1 else sys.stderr
    if to is None:
        return
    try:
        to.write(text)
    except UnicodeEncodeError:  # a bar's blocks, where the locale has none
        code = to.encoding or "ascii"
        to.write(text.encode(code, "replace").decode(code))
    to.flush()

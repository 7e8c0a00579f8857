# SPDX-License-Identifier: Apache-2.0
"""breakpoint() and input() in a worker: they work in the rank that was given the terminal
(`manta run --pdb RANK`), and say so in the others, whose standard input is empty."""

from __future__ import annotations

import builtins
import os
import sys
from typing import Any, NoReturn

_input = builtins.input


def _hint(what: str) -> str:
    rank = os.environ.get("RANK", "0")
    return (f"{what} in rank {rank}, which has no terminal\n"
            f"hint: `manta run --pdb {rank} SCRIPT` gives it the terminal; so does "
            f"MANTA_PDB={rank} in the environment of the driver")


def _ask(prompt: Any = "", /) -> str:
    try:
        return _input(prompt)
    except EOFError:
        if os.isatty(0):
            raise
        if sys._getframe(1).f_globals.get("__name__") == "cmd":  # pdb takes an EOFError for "quit"
            raise RuntimeError(_hint("a debugger")) from None
        raise EOFError(_hint("input()")) from None


def _break(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(_hint("breakpoint()"))


def take() -> None:
    """Before a job, whose environment is set. PYTHONBREAKPOINT may name a debugger that needs no
    terminal, and so may a hook of the user's own."""
    builtins.input = _ask
    alone = os.environ.get("PYTHONBREAKPOINT", "") in ("", "pdb.set_trace") and not os.isatty(0)
    if sys.breakpointhook in (_break, sys.__breakpointhook__):
        sys.breakpointhook = _break if alone else sys.__breakpointhook__

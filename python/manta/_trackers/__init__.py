# SPDX-License-Identifier: Apache-2.0
"""Packages of experiment trackers, each in a process of its own: `python -m manta._trackers NAME`.

libmanta's sinks (src/sink/helper.h) ask in lines of JSON over descriptor 3, and get a line for
each. What goes wrong is the answer {"error": TEXT}; the process ends with the socket."""

from __future__ import annotations

import json
import socket
from typing import Any, Callable

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Refused(Exception):
    """There is no use in trying again."""


def serve(answer: Answer, to: socket.socket) -> None:
    """Answers until the other side is gone."""
    with to.makefile("r", encoding="utf-8", errors="replace") as questions:
        for line in questions:
            try:
                said = answer(json.loads(line))
            except Exception as e:  # the sink shows it, and comes again unless it is of no use
                final = isinstance(e, (ImportError, Refused))
                said = {"error": f"{type(e.__cause__ or e).__name__}: {e}", "final": final}
            try:
                to.sendall(json.dumps(said).encode() + b"\n")
            except ConnectionError:  # it was not waited for
                return

# SPDX-License-Identifier: Apache-2.0
"""Functions over rows in processes of the reader: how they get there from a worker, and what they
raise comes back. Called by the extension, by name.

(1) A function travels as a job does: definitions of the main script by value.
(2) Before each call all generators of random numbers are seeded by the rows: the same rows give the
    same, in whatever process and however often.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any, Callable

from manta._runtime import main, raised, worker

dumps = raised.dumps  # an exception, there
loads = raised.loads  # … and in the worker


# --- in the worker --------------------------------------------------------------------------------


def pack(function: Callable[[Any], Any]) -> bytes | None:
    """The function with what surrounds it; None: it cannot leave this process."""
    from manta._runtime import job, travel
    out = io.BytesIO()
    try:
        pickler = travel.Outward(out)
        pickler.dump(function)
        return pickle.dumps((job.header(travel.rest_of(pickler)), out.getvalue()))
    except Exception:
        return None


# --- in a process of the reader -------------------------------------------------------------------


class Loaded:
    """A function that was loaded."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name: str = function.name

    def __call__(self, batch: Any, number: int) -> Any:
        seed(number)
        try:
            return self.function(batch)
        finally:
            worker.flush()


def load(data: bytes) -> Loaded:
    worker.take_signals()
    worker.take_environment()
    header, body = pickle.loads(data)
    worker.take(header)
    function = pickle.loads(body)
    main.define_rest()
    return Loaded(function)


def seed(number: int) -> None:
    """All generators that are loaded; numpy's also if the function has yet to import it."""
    from importlib.util import find_spec
    from manta._state import chance
    if "numpy.random" not in sys.modules and find_spec("numpy"):
        import numpy.random  # noqa: F401
    chance.seed(number.to_bytes(8, "little"))

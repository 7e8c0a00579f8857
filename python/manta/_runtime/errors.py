# SPDX-License-Identifier: Apache-2.0
"""What a worker raised, raised again in the driver: itself, with the user's frames of the worker in
its traceback. And the exceptions that have no better class: no framework is needed to read them."""

from __future__ import annotations

from typing import Any

from manta._names import public
from manta._runtime import raised


@public
class TrainingFailed(RuntimeError):
    """A train function ended in a way that has no type of its own here."""


@public
class CollectiveTimeout(RuntimeError, TimeoutError):
    """An operation between ranks that was not over in time. Whichever of the two is expected:
    frameworks raise a RuntimeError."""


def of_worker(e: Any, log: str) -> BaseException:
    """What the error of a run stands for; `e` itself if no worker raised it."""
    detail = getattr(e, "detail", None)
    if not isinstance(detail, dict) or "error" not in detail:
        return e  # type: ignore[no-any-return]
    error = _harmless(raised.loads(detail["error"]), e.rank)
    vars(error)["rank"] = e.rank
    note = f"raised by rank {e.rank}" + (f"; its log: {log}" if log else "")
    vars(error)["__notes__"] = [*vars(error).get("__notes__", ()), note]
    return error


def _harmless(error: BaseException, rank: int) -> BaseException:
    """One that would end the driver without a word is told as a failure."""
    if isinstance(error, SystemExit):
        failed = TrainingFailed(f"rank {rank} called sys.exit({error.code!r})")
        vars(failed)["code"] = error.code
    elif isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        text = f": {error}" if str(error) else ""
        failed = TrainingFailed(f"the train function ended by {type(error).__name__}{text}")
    else:
        return error
    failed.__cause__, failed.__context__ = error.__cause__, error.__context__
    return failed.with_traceback(error.__traceback__)

# SPDX-License-Identifier: Apache-2.0
"""An exception that was raised in a worker, raised again in the driver: its own type, and the
worker's traceback as its cause; the user's own frames are in its own."""

from __future__ import annotations

import builtins
import pickle
from types import TracebackType
from typing import Any, NoReturn

from manta import _frames


class RemoteTraceback(Exception):
    """The traceback of a worker, as text."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


class TrainingFailed(RuntimeError):
    """A train function ended in a way that has no type of its own here."""


def raise_remote(e: Any, log: str) -> NoReturn:
    """Raises what the error of a run stands for."""
    detail = getattr(e, "detail", None)
    if not isinstance(detail, dict) or "traceback" not in detail:
        raise e
    error = _rebuild(detail)
    error.rank = e.rank  # type: ignore[attr-defined]
    error.add_note(f"raised by rank {e.rank}" + (f"; its log: {log}" if log else ""))
    error.__cause__ = RemoteTraceback(detail["traceback"])
    raise error.with_traceback(_own_frames(detail))


def _own_frames(detail: dict[str, Any]) -> TracebackType | None:
    """None where this interpreter cannot make frames: the cause says the same in words."""
    try:
        return _frames.rebuild(pickle.loads(detail["frames"]))
    except Exception:
        return None


def _rebuild(detail: dict[str, Any]) -> BaseException:
    """The exception itself, or one that is caught by the same `except` as far as that can be."""
    error = None
    if detail["pickle"] is not None:
        try:
            error = pickle.loads(detail["pickle"])
        except Exception:  # its module is not here, or its constructor wants more
            pass
    if not isinstance(error, BaseException):
        error = _stand_in(detail["names"], detail["text"])
    if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        name = type(error).__name__  # it must not end the driver
        return TrainingFailed(f"the train function ended by {name}: {detail['text']}")
    return error


def _stand_in(names: list[str], text: str) -> BaseException:
    """A class of the lost one's name below the first of its bases that is builtin."""
    base: type[BaseException] = TrainingFailed
    for name in names:
        module, _, short = name.rpartition(".")
        found = getattr(builtins, short, None) if module == "builtins" else None
        if isinstance(found, type) and issubclass(found, BaseException) and found not in (
                Exception, BaseException):
            base = found
            break
    module, _, short = names[0].rpartition(".")
    cls: type[BaseException] = type(short, (base,), {"__module__": module})
    error = cls.__new__(cls)
    error.args = (text,)
    return error

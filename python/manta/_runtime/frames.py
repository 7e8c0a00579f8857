# SPDX-License-Identifier: Apache-2.0
"""The user's frames of an exception, on their way from a worker to the driver: there they stand in
its traceback with their source, which a worker does not have of a notebook's cell, and a debugger
finds what their variables were."""

from __future__ import annotations

import functools
import os
from types import CodeType, FrameType, TracebackType
from typing import Any, Callable, Iterator, ParamSpec, TypeVar

import manta
from manta import _frameworks

HOME = os.path.dirname(os.path.abspath(manta.__file__))
FRAMES, DETAILED = 200, 20  # so many; the innermost ones with their variables
VARIABLES, TEXT = 50, 200  # of each frame; letters of each
_ARRAYS = {"numpy", *_frameworks.MODULES}  # may be asked for their shape

Frame = tuple[str, str, int, dict[str, str]]  # file, function, line, variables


class Shown:
    """What a variable was, to be looked at."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


# --- in the worker --------------------------------------------------------------------------------


def is_ours(file: str) -> bool:
    return file.startswith(HOME + os.sep)


def describe(trace: TracebackType | None) -> list[Frame]:
    """The frames below manta's own. Of those of manta's that the user's have called, the first."""
    found: list[tuple[FrameType, int]] = []
    ours = True
    while trace is not None:
        above, ours = ours, is_ours(trace.tb_frame.f_code.co_filename)
        if not (above and ours):
            found.append((trace.tb_frame, trace.tb_lineno or 0))
        trace = trace.tb_next
    if len(found) > FRAMES:
        found[FRAMES // 4:-FRAMES * 3 // 4] = []
    return [(frame.f_code.co_filename, frame.f_code.co_name, line,
             _variables(frame) if i >= len(found) - DETAILED else {})
            for i, (frame, line) in enumerate(found)]


def _variables(frame: FrameType) -> dict[str, str]:
    if frame.f_code.co_name == "<module>":
        return {}
    names = [n for n in frame.f_locals if not n.startswith("__")]
    return {n: text_of(frame.f_locals[n])[:TEXT] for n in names[:VARIABLES]}


def text_of(o: Any) -> str:
    """Nothing of the user's is called: his repr may fail, and one of a tensor on a GPU would wait
    for a peer that is gone."""
    try:
        return _text(o)
    except Exception:
        return "<?>"


def _text(o: Any) -> str:
    if o is None or type(o) in (bool, int, float, complex, str, bytes):
        return repr(o[:TEXT] if isinstance(o, (str, bytes)) else o)
    if issubclass(type(o), type):
        return f"<class {type.__getattribute__(o, '__name__')}>"
    kind = type(o).__name__
    if type(o) in (list, tuple, dict, set, frozenset):
        return f"<{kind} of {len(o)}>"
    if type(o).__module__.partition(".")[0] in _ARRAYS and hasattr(o, "shape"):
        return f"<{kind} {tuple(o.shape)} {getattr(o, 'dtype', '')}>"
    return f"<{kind}>"


# --- in the driver --------------------------------------------------------------------------------


P = ParamSpec("P")
R = TypeVar("R")


def folded(method: Callable[P, R]) -> Callable[P, R]:
    """A method that users call: of manta's frames above what a worker or a callback raised, their
    traceback shows one line."""
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            if (users := _below(error.__traceback__)) is None:
                raise
            raise error.with_traceback(users)  # manta: as it was raised, by a worker or a callback
    return call


def _below(trace: TracebackType | None) -> TracebackType | None:
    """What follows manta's frames, if the last one is not manta's."""
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def rebuild(frames: list[Frame]) -> TracebackType | None:
    """A traceback of them."""
    trace = None
    for file, function, line, variables in reversed(frames):
        shown = {name: Shown(text) for name, text in variables.items()}
        trace = TracebackType(trace, _frame(file, function, line, shown), 0, line)
    return trace


def _frame(file: str, function: str, line: int, variables: dict[str, Any]) -> FrameType:
    """A frame that stands at that line: the one of a piece of code that fails there."""
    code = compile("raise _here", file, "exec")
    code = code.replace(co_name=function, co_qualname=function, co_firstlineno=max(1, line),
                        co_linetable=b"".join(_no_columns(code)))
    here = StopIteration()
    try:
        exec(code, {"__name__": "worker", "__file__": file, "_here": here}, variables)
    except StopIteration as e:
        assert e.__traceback__ and e.__traceback__.tb_next
        return e.__traceback__.tb_next.tb_frame
    raise AssertionError("unreachable")


def _no_columns(code: CodeType) -> Iterator[bytes]:
    """Its location table, all of it in the first line: entries of up to 8 units, without columns
    (form 13), the line moved on by 0."""
    left = len(code.co_code) // 2
    while left > 0:
        yield bytes([0x80 | 13 << 3 | min(left, 8) - 1, 0])
        left -= 8

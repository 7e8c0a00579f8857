# SPDX-License-Identifier: Apache-2.0
"""A worker's process: what surrounds the user's function. Called by the extension, by name."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import Any

from manta import _manta

broken: BaseException | None = None  # why the framework could not be imported


# --- values ---------------------------------------------------------------------------------------


def dump(o: Any) -> tuple[bytes, str]:
    """What has no counterpart in C: its pickle, and something to read."""
    import cloudpickle
    text = repr(o)
    return cloudpickle.dumps(o), text if len(text) <= 200 else text[:197] + "..."


def load(data: bytes) -> Any:
    return pickle.loads(data)


# --- a job ----------------------------------------------------------------------------------------


def born() -> None:
    """In a new worker, before its first job. Its output is a pipe, which Python would fill in
    blocks."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def take_environment() -> None:
    """os.environ is a copy, made when the interpreter started."""
    now = dict(pair.split(b"=", 1) for pair in _manta.environment() if b"=" in pair)
    data = os.environ._data  # type: ignore[attr-defined]
    data.clear()
    data.update(now)


def run() -> Any:
    """One call of a train function: the payload says which and around what."""
    take_environment()
    if broken is not None:
        raise broken
    header, body = pickle.loads(_manta.payload())
    sys.path[:] = header["path"]
    sys.argv[:] = header["argv"]
    import cloudpickle
    job = cloudpickle.loads(body)
    try:
        return job()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


# --- failures -------------------------------------------------------------------------------------


def status_of(e: BaseException) -> int:
    """A failure that only follows from a lost peer is called by that name."""
    if isinstance(e, _manta.Preempted):
        return _manta.EPREEMPTED
    try:
        _manta.check()
    except _manta.PeerLost:
        return _manta.EPEERLOST
    except _manta.Aborted:
        return _manta.EABORTED
    except _manta.Error:
        pass
    return _manta.EPEERLOST if isinstance(e, _manta.PeerLost) else _manta.EUSER


def explain(e: BaseException) -> tuple[int, str, dict[str, Any]]:
    """(status, message, what the driver makes the exception of)."""
    text = "".join(traceback.format_exception(e))
    try:
        import cloudpickle
        pickled = cloudpickle.dumps(e.with_traceback(None))
        pickle.loads(pickled)
    except Exception:
        pickled = None
    last = "".join(traceback.format_exception_only(e)).strip()
    detail = {"pickle": pickled, "traceback": text, "names": names_of(type(e)), "text": str(e)}
    return status_of(e), last, detail


def names_of(cls: type) -> list[str]:
    """The class and its bases, for a driver that has none but the builtin ones."""
    return [f"{c.__module__}.{c.__qualname__}" for c in cls.__mro__]

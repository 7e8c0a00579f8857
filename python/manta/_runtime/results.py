# SPDX-License-Identifier: Apache-2.0
"""Return values on their way to the driver: small ones inside a message, large ones as a memory
file, whatever their size. Called by the extension, by name."""

from __future__ import annotations

import io
import os
import pickle
import reprlib
from typing import Any, BinaryIO

INLINE = 32 << 10  # bytes of a pickle that travel inside a message


class _Spill:
    """Takes a pickle: a memory file, as soon as it is large."""

    def __init__(self) -> None:
        self.small = io.BytesIO()
        self.file: BinaryIO | None = None

    def write(self, data: Any) -> int:
        n = memoryview(data).nbytes
        if self.file is None and self.small.tell() + n > INLINE:
            fd = os.memfd_create("manta-result", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            self.file = os.fdopen(fd, "wb", buffering=1 << 20)
            self.file.write(self.small.getvalue())
        (self.file or self.small).write(data)
        return n

    def close(self) -> None:
        if self.file is not None:
            file, self.file = self.file, None
            file.close()


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


def dump(o: Any) -> tuple[int, bytes, str]:
    """The pickle of a result: (descriptor, b"", something to read), or (-1, pickle, …)."""
    from manta._runtime import pickling
    spill = _Spill()
    try:
        pickling.dump_unwrapped(o, spill)
        if spill.file is None:
            return -1, spill.small.getvalue(), _short.repr(o)
        spill.file.flush()
        return os.dup(spill.file.fileno()), b"", _short.repr(o)
    finally:
        spill.close()


def load(data: Any) -> Any:
    """A result of the own run."""
    return pickle.loads(data)

# SPDX-License-Identifier: Apache-2.0
"""A pickle that is too large to travel with every trial of an experiment: it lies once in a memory
file of the driver, which the processes of its host map. Arrays in it stay there: a process that
writes to one has a copy of the pages that it writes, and of no other."""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import weakref
from typing import Any

LARGE = 64 << 10  # bytes; less than that travels faster than it is mapped
_ALIGN = 64  # as what allocates arrays has them
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Where = tuple[int, int, list[int]]  # process, descriptor, bytes of each part


def apart(buffer: pickle.PickleBuffer, found: list[memoryview]) -> bool:
    """For pickle's buffer_callback. True: it is small, or has gaps, and stays in the pickle."""
    try:
        view = buffer.raw()
    except BufferError:
        return True
    if view.nbytes < LARGE:
        return True
    found.append(view)
    return False


class Shared:
    """In the driver: the memory lives as long as this object."""

    def __init__(self, parts: list[memoryview]):
        fd = os.memfd_create("manta-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        weakref.finalize(self, os.close, fd)
        self.where: Where = (os.getpid(), fd, [part.nbytes for part in parts])
        at = 0
        for part in parts:
            at += -at % _ALIGN
            while part.nbytes:
                written = os.pwrite(fd, part, at)
                part, at = part[written:], at + written
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)


def load(where: Where) -> Any:
    """In a worker: what the parts hold, the first of which is the pickle."""
    pid, number, sizes = where
    fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        mapped = memoryview(mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
    finally:
        os.close(fd)
    parts, at = [], 0
    for size in sizes:
        at += -at % _ALIGN
        parts.append(mapped[at:at + size])
        at += size
    return pickle.loads(parts[0], buffers=parts[1:])

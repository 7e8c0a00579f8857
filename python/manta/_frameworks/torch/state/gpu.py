# SPDX-License-Identifier: Apache-2.0
"""Tensors of a GPU: into pinned memory, or straight into a slot."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

import torch

from manta import _manta
from manta._state.entry import Entry

_pinned: Any = None  # host memory that a device copies into by itself, kept from save to save
_registered: dict[int, int] = {}  # slots that it can copy into as well: serial -> address


def _begin_copy(t: Any, host: Any) -> None:
    """host: bytes in host memory, as many as the tensor has."""
    host.view(t.dtype).view(t.shape).copy_(t, non_blocking=True)


def _await_copies(sources: list[Any]) -> None:
    for device in {t.device for t in sources}:
        torch.cuda.synchronize(device)


def staged(entries: list[Entry]) -> list[Entry]:
    """The same, those of a GPU in host memory that the next call uses again."""
    away = [i for i, e in enumerate(entries) if on_gpu(e.source)]
    hosts = _stage([entries[i].source for i in away]) if away else []
    made = list(entries)
    for i, host in zip(away, hosts):
        made[i] = made[i]._replace(source=host, address=host.data_ptr())
    return made


def _stage(sources: list[Any]) -> list[Any]:
    """Tensors of a GPU, in host memory: all copies are begun, then waited for once."""
    global _pinned
    sizes = [-(-t.nbytes // 64) * 64 for t in sources]
    if _pinned is None or _pinned.numel() < sum(sizes):
        _pinned = None
        _pinned = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=True)
    hosts, at = [], 0
    for t, size in zip(sources, sizes):
        host = _pinned[at:at + t.nbytes]
        _begin_copy(t, host)
        hosts.append(host)
        at += size
    _await_copies(sources)
    return hosts


def _register(base: int, size: int, serial: int, live: tuple[int, ...]) -> None:
    """Makes a slot memory that the device copies into by itself. If it can't be, the copy is
    slower. A slot that is gone is forgotten first: its address may be another's now."""
    cuda = torch.cuda.cudart()
    for gone in set(_registered) - set(live):
        cuda.cudaHostUnregister(_registered.pop(gone))
    if serial not in _registered and int(cuda.cudaHostRegister(base, size, 0)) == 0:
        _registered[serial] = base


Slot = tuple[int, int, int, tuple[int, ...]]  # address, bytes, serial, and those of all slots


@contextmanager
def copied(sources: list[Any], addresses: list[int], slot: Slot) -> Iterator[None]:
    """What of it is on a GPU goes straight to its address in a slot, meanwhile; at the end it is
    there."""
    away = [(t, to) for t, to in zip(sources, addresses) if on_gpu(t) and t.numel()]
    _register(*slot)
    for t, to in away:
        _begin_copy(t, torch.frombuffer(_manta.view(to, t.nbytes, None), dtype=torch.uint8))
    try:
        yield
    finally:
        _await_copies([t for t, _ in away])


def filler(entries: list[Entry]) -> Callable[..., None] | None:
    """None: nothing of it is on a GPU."""
    if not any(on_gpu(e.source) for e in entries):
        return None

    def fill(addresses: list[int], *slot: Any) -> None:
        with copied([e.source for e in entries], addresses, slot):
            pass

    return fill


def on_gpu(source: Any) -> bool:
    return isinstance(source, torch.Tensor) and source.is_cuda


def is_elsewhere(source: Any) -> bool:
    """On a device that is neither this host's memory nor a GPU of CUDA's kind."""
    return (isinstance(source, torch.Tensor) and source.device.type != "cpu"
            and not source.is_cuda)

# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU that was saved before, saved again.

What a state becomes is known when all of it was pickled, and only then do its tensors have places
in a slot. But mostly it becomes what it became the last time: then the copies can begin at once,
and the pickle is made while they are on their way. If it turns out to be another, nothing was
saved, and all is done in the usual order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from manta import _manta
from manta._frameworks.torch.state import gpu
from manta._frameworks.torch.state.packing import address_of, form_of
from manta._state.entry import FORMAT, NUMBER, STREAM, Entry, Packing, Row
from manta._state.packing import find


class _Plan(NamedTuple):
    forms: list[tuple[str, int, tuple[int, ...]]]  # of the entries: name, type, shape
    room: int  # bytes of the stream


class _Changed(Exception):
    """It becomes something else this time."""


_plan: _Plan | None = None


def remember(entries: list[Entry], stream: bytes) -> None:
    """A state became this."""
    global _plan
    _plan = None
    if any(gpu.on_gpu(e.source) for e in entries):
        _plan = _Plan([(e.name, e.dtype, e.shape) for e in entries], len(stream))


def save(obj: Any) -> bool:
    """False: it is not known what it becomes."""
    sources = _sources(_plan, obj) if _plan else None
    if _plan is None or sources is None:
        return False
    plan = _plan

    def fill(addresses: list[int], *slot: Any) -> None:
        with gpu.copied(sources, addresses, slot):
            found, stream = find(obj)
            if not _is_as_planned(plan, sources, found, stream):
                raise _Changed
            room = memoryview(_manta.view(addresses[-1], plan.room, None))
            room[:len(stream)] = stream
            room[len(stream):] = bytes(plan.room - len(stream))

    rows: list[Row] = [(*form, address_of(t)) for form, t in zip(plan.forms, sources)]
    rows.append((STREAM, NUMBER["U8"], (plan.room,), 0))
    try:
        _manta.save(rows, {"format": FORMAT}, fill)
    except _Changed:
        return False
    return True


def _sources(plan: _Plan, obj: Any) -> list[Any] | None:
    """The tensors that have the planned names. None: they are not what they were."""
    found = Packing()
    found.name_leaves(obj)
    tensors = {".".join(path): t for path, t in found.paths.values()}
    sources = [tensors.get(name) for name, _, _ in plan.forms]
    if all(_is_plain(t) and form_of(t) == form[1:] for t, form in zip(sources, plan.forms)):
        return [t.detach() for t in sources if t is not None]
    return None


def _is_plain(t: Any) -> bool:
    """Whether it is an entry just as it is."""
    return (type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided
            and t.device.type in ("cpu", "cuda") and t.is_contiguous()
            and not (t.is_conj() or t.is_neg()))


def _is_as_planned(plan: _Plan, sources: list[Any], found: Packing, stream: bytes) -> bool:
    if len(stream) > plan.room or len(found.entries) != len(sources):
        return False
    return all((e.name, e.dtype, e.shape) == form and _is_at(e.source, t)
               for e, form, t in zip(found.entries, plan.forms, sources))


def _is_at(source: Any, t: Any) -> bool:
    return (isinstance(source, torch.Tensor) and source.device == t.device
            and source.data_ptr() == t.data_ptr())

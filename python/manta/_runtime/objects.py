# SPDX-License-Identifier: Apache-2.0
"""put() and get(): objects by reference. A reference in a config, in a closure or in a result takes
its object along, once for each pickle, whatever the number of references to it.

(1) In a process there is one object for a reference, however many copies of the reference arrive.
(2) The object lives as long as somebody in the process has a reference to it.
"""

from __future__ import annotations

import uuid
import weakref
from typing import Any, Sequence

from manta._names import public


class _Held:
    """An object of the store; those who have a reference keep it."""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Any):
        self.value = value


_store: weakref.WeakValueDictionary[str, _Held] = weakref.WeakValueDictionary()


@public
class ObjectRef:
    """What put() gives. Equal references have the same object."""

    __slots__ = ("__weakref__", "_held", "_id")

    def __init__(self, id: str, value: Any):
        """To the object that is here already by that name, if there is one."""
        self._id, self._held = id, _store.setdefault(id, _Held(value))

    def hex(self) -> str:
        return self._id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and other._id == self._id

    def __hash__(self) -> int:
        return hash(self._id)

    def __repr__(self) -> str:
        return f"ObjectRef({self._id})"

    def __reduce__(self) -> Any:
        return ObjectRef, (self._id, self._held.value)


def put(value: Any) -> ObjectRef:
    """A reference to the object, which get() gives back: the same object in this process, a copy in
    a worker."""
    if isinstance(value, ObjectRef):
        raise TypeError("put() of an ObjectRef: it is a reference already")
    return ObjectRef(uuid.uuid4().hex, value)


def get(refs: ObjectRef | Sequence[ObjectRef], *, timeout: float | None = None) -> Any:
    """The object of a reference, or a list of the objects of several. It never waits: what there
    is a reference to is there."""
    if isinstance(refs, ObjectRef):
        return refs._held.value
    if not isinstance(refs, (list, tuple)):
        raise TypeError(f"get() takes what put() gave, or a list of it, not {refs!r}")
    return [get(_checked("get", ref)) for ref in refs]


def wait(refs: Sequence[ObjectRef], *, num_returns: int = 1, timeout: float | None = None,
         fetch_local: bool = True) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """(ready, not ready): all are ready, and the first num_returns of them are given."""
    if isinstance(refs, ObjectRef) or not isinstance(refs, (list, tuple)):
        raise TypeError(f"wait() takes a list of what put() gave, not {refs!r}")
    if not 1 <= num_returns <= max(len(refs), 1):
        raise ValueError(f"num_returns must be 1 to {len(refs)}, not {num_returns}")
    given = [_checked("wait", ref) for ref in refs]
    return given[:num_returns], given[num_returns:]


def _checked(what: str, ref: Any) -> ObjectRef:
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"{what}() takes what put() gave, not {ref!r}")
    return ref

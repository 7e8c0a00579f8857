# SPDX-License-Identifier: Apache-2.0
"""What happens to an object before it is saved."""

from __future__ import annotations

from typing import Any, Callable

from manta import _frameworks
from manta._state.entry import MAX_DEPTH

Unwrap = Callable[[Any], Any]


def clean(obj: Any) -> Any:
    """The object with wrapped models unwrapped, and state_dicts of wrapped models without the
    prefix "module.". What needs no change is the same object."""
    return _clean(obj, [tensors.unwrapper() for tensors in _frameworks.all_tensors()], 0)


def _clean(obj: Any, unwrappers: list[Unwrap], depth: int) -> Any:
    for unwrap in unwrappers:
        if (inner := unwrap(obj)) is not obj:
            return inner
    if depth > MAX_DEPTH:
        return obj
    if isinstance(obj, dict):
        return _clean_dict(obj, unwrappers, depth)
    if type(obj) in (list, tuple):
        items = [_clean(item, unwrappers, depth + 1) for item in obj]
        same = all(a is b for a, b in zip(items, obj))
        return obj if same else type(obj)(items)
    return obj


def _clean_dict(obj: dict[Any, Any], unwrappers: list[Unwrap], depth: int) -> dict[Any, Any]:
    items = {key: _clean(value, unwrappers, depth + 1) for key, value in obj.items()}
    prefix = "module."
    wrapped = bool(obj) and all(isinstance(key, str) and key.startswith(prefix) for key in obj)
    if not wrapped and all(items[key] is value for key, value in obj.items()):
        return obj
    if wrapped:
        items = {key[len(prefix):]: value for key, value in items.items()}
    new = _refill(obj, items)
    meta = getattr(obj, "_metadata", None)  # of a state_dict: the versions of its modules
    if wrapped and isinstance(meta, dict):
        new._metadata = _refill(meta, {  # type: ignore[attr-defined]
            key[len(prefix):]: value for key, value in meta.items()
            if f"{key}.".startswith(prefix)})
    return new


def _refill(old: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A dict like the old one, with other content."""
    if type(old) is dict:
        return items
    import copy
    new = copy.copy(old)
    new.clear()
    new.update(items)
    return new


def stamp(obj: Any) -> Any:
    """A dict with the time in it; anything else as it is."""
    if not isinstance(obj, dict):
        return obj
    import time
    return _refill(obj, {**obj, "_timestamp": int(time.time())})

# SPDX-License-Identifier: Apache-2.0
"""What happens to an object before it is saved."""

from __future__ import annotations

from typing import Any

from manta._state.entry import MAX_DEPTH, loaded


def clean(obj: Any) -> Any:
    """The object with wrapped models unwrapped, and state_dicts of wrapped models without the
    prefix "module.". What needs no change is the same object."""
    return _clean(obj, _Kinds(), 0)


class _Kinds:
    """Classes of models, as far as anybody has loaded them."""

    def __init__(self) -> None:
        self.wrappers = loaded("torch.nn.parallel", "DistributedDataParallel", "DataParallel")
        self.cut = loaded("torch.distributed.fsdp", "FullyShardedDataParallel", "FSDPModule")


def _clean(obj: Any, kinds: _Kinds, depth: int) -> Any:
    if isinstance(obj, kinds.wrappers):
        return getattr(obj, "module")
    if isinstance(obj, kinds.cut):
        raise ValueError(f"the checkpoint cannot be saved: each rank has only pieces of the "
                         f"FSDP model ({type(obj).__name__})\n"
                         f"hint: save its state_dict(), with sharded=True if that holds DTensors")
    if depth > MAX_DEPTH:
        return obj
    if isinstance(obj, dict):
        return _clean_dict(obj, kinds, depth)
    if type(obj) in (list, tuple):
        items = [_clean(item, kinds, depth + 1) for item in obj]
        same = all(a is b for a, b in zip(items, obj))
        return obj if same else type(obj)(items)
    return obj


def _clean_dict(obj: dict[Any, Any], kinds: _Kinds, depth: int) -> dict[Any, Any]:
    items = {key: _clean(value, kinds, depth + 1) for key, value in obj.items()}
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

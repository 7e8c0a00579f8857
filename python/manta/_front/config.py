# SPDX-License-Identifier: Apache-2.0
"""A config is any object. What a train function gets is the object itself; here is what run.log
says of it, and what it is as keywords."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 16
MAX_ENTRIES = 1000  # of one list or dict in run.log
MAX_TEXT = 10000  # characters of one string there


def entries(config: Any) -> dict[Any, Any] | None:
    """The entries of something that has them by name: a dict or another Mapping (DictConfig), a
    dataclass, a Namespace. None: it has none."""
    if isinstance(config, Mapping):
        return dict(config)
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    if type(config).__module__ in ("argparse", "types") and hasattr(config, "__dict__"):
        return dict(vars(config))
    if hasattr(config, "items") and hasattr(config, "keys"):
        return dict(config.items())
    return None


def keywords(config: Any, function: str) -> dict[str, Any]:
    """For `def train(**config)`."""
    found = entries(config)
    if found is None:
        found = dict(vars(config)) if hasattr(config, "__dict__") else None
    if found is None or not all(isinstance(key, str) for key in found):
        raise TypeError(f"{function}(**config) gets the config as keywords, and this one, a "
                        f"{type(config).__name__}, has no entries by name\n"
                        f"hint: write {function}(config)")
    return found


def described(config: Any) -> dict[str, Any]:
    """Plain values for run.log; never fails."""
    try:
        found = _plain(config, 0)
    except Exception:
        found = None
    return found if isinstance(found, dict) else {"config": found if found is not None
                                                  else _text(config)}


def _plain(o: Any, depth: int) -> Any:
    if o is None or isinstance(o, (bool, float)):
        return o
    if isinstance(o, int):
        return int(o) if -1 << 63 <= o < 1 << 63 else str(o)
    if isinstance(o, str):
        return _cut(o)
    if isinstance(o, (list, tuple)) and depth < MAX_DEPTH:
        items = [_plain(x, depth + 1) for x in o[:MAX_ENTRIES]]
        return items if len(o) <= MAX_ENTRIES else [*items, f"… ({len(o)} entries)"]
    inside = entries(o) if depth < MAX_DEPTH else None
    if inside is not None:
        return _plain_dict(inside, depth)
    if hasattr(o, "item") and hasattr(o, "dtype") and getattr(o, "size", None) == 1:
        return _plain(o.item(), depth + 1)  # a scalar of numpy
    return _text(o)


def _plain_dict(o: dict[Any, Any], depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in o.items():
        if len(out) == MAX_ENTRIES:
            out["…"] = f"({len(o)} entries)"
            break
        name = _cut(str(key)).replace("\0", "")
        out["\\" + name if name.startswith("$") else name] = _plain(value, depth + 1)
    return out


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode().replace("\0", "")
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


def _text(o: Any) -> str:
    try:
        return _cut(_short.repr(o))
    except Exception:
        return f"<{type(o).__module__}.{type(o).__qualname__}>"

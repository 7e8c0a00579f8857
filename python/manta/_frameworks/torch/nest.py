# SPDX-License-Identifier: Apache-2.0
"""Tensors inside of tuples, lists, dicts and objects: batches, and what a model returns."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Callable

import torch

Change = Callable[[Any], Any]


def change(o: Any, of_tensor: Change, of_other: Change | None = None) -> Any:
    """The same structure with of_tensor(t) in the place of every tensor t and, if it is given,
    of_other(x) in that of every other object x that has a to(), a container or not."""
    def again(part: Any) -> Any:
        return change(part, of_tensor, of_other)

    if isinstance(o, torch.Tensor):
        return of_tensor(o)
    if of_other is not None and hasattr(o, "to"):  # such as a PackedSequence
        return of_other(o)
    if isinstance(o, Mapping):
        return _mapping(o, again)
    if isinstance(o, tuple) and hasattr(o, "_fields"):
        return type(o)(*map(again, o))
    if isinstance(o, (list, tuple)):
        return type(o)(map(again, o))
    if dataclasses.is_dataclass(o) and not isinstance(o, type):
        return _object(o, again)
    return o


def _mapping(o: Any, again: Change) -> Any:
    if type(o) is dict:
        return {key: again(value) for key, value in o.items()}
    made = copy.copy(o)  # keeps a default factory, attributes, an order
    for key, value in o.items():
        made[key] = again(value)
    return made


def _object(o: Any, again: Change) -> Any:
    made = copy.copy(o)
    for field in dataclasses.fields(o):
        object.__setattr__(made, field.name, again(getattr(o, field.name)))
    return made


def move(part: Any, device: torch.device) -> Any:
    """A tensor, or what has a to() of its own. The copy may be under way when this returns."""
    try:
        return part.to(device, non_blocking=True)
    except TypeError:  # it takes the device alone
        return part.to(device)


def to_device(o: Any, device: torch.device) -> Any:
    return change(o, lambda t: move(t, device), lambda part: move(part, device))


def to_float(o: Any) -> Any:
    """Half precision becomes float32."""
    half = (torch.float16, torch.bfloat16)
    return change(o, lambda t: t.float() if t.dtype in half else t)

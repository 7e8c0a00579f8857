# SPDX-License-Identifier: Apache-2.0
"""Host memory for tensors that libmanta cannot take as they lie.

libmanta wants dense elements in a row in host memory. A tensor that is not so (a view with gaps,
memory of a GPU) has a stand-in there: filled before an operation that reads it, copied back after
one that writes it.

(1) `read` and `room` give the tensor itself where that will do.
(2) The copies wait for the device: when `read` returns the bytes are there, and what was copied
    back can be used on any stream.
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

Undo = Callable[[], object]


def _is_on_host(t: Tensor) -> bool:
    return bool(t.device.type == "cpu")


def _empty(t: Tensor) -> Tensor:
    """Of its shape and type in host memory; page-locked for a GPU, which copies faster."""
    return torch.empty(t.shape, dtype=t.dtype, pin_memory=t.is_cuda)


def _copy(to: Tensor, source: Tensor) -> None:
    to.copy_(source)


def check(*tensors: Tensor) -> None:
    for t in tensors:
        if t.layout != torch.strided:
            raise ValueError(f"the backend 'manta' takes dense tensors, not {t.layout}\n"
                             f"hint: only all_reduce takes sparse ones (torch.sparse_coo)")
        if t.device.type == "meta":
            raise ValueError("the backend 'manta' takes tensors with data, not of the meta device")


def _lies_well(t: Tensor) -> bool:
    if t.layout == torch.strided and _is_on_host(t):
        return bool(t.is_contiguous()) and not (t.is_conj() or t.is_neg())
    check(t)
    return False


def read(t: Tensor) -> Tensor:
    """The tensor itself, or a stand-in with its elements."""
    if _lies_well(t):
        return t
    x = _empty(t)
    _copy(x, t)
    return x


def room(t: Tensor) -> Tensor:
    """The tensor itself, or a stand-in that is yet to be written."""
    return t if _lies_well(t) else _empty(t)


def back(t: Tensor, x: Tensor) -> Undo | None:
    """What brings the stand-in x of t into t; None if it is t itself."""
    return None if x is t else lambda: _copy(t, x)


def put(t: Tensor, x: Tensor) -> None:
    """x, of as many elements, in host memory, becomes what t holds."""
    _copy(t, x.view(t.shape))

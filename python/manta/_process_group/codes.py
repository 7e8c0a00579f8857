# SPDX-License-Identifier: Apache-2.0
"""What tensors and reductions are to libmanta."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manta import _manta
from manta._state.entry import NUMBER, TYPES


def _codes() -> dict[torch.dtype, tuple[int, int]]:
    """libmanta's number of a type, and how many of those an element is."""
    codes = {getattr(torch, name): (NUMBER[kind], 1) for name, kind in TYPES.items()}
    codes[torch.complex64] = (NUMBER["F32"], 2)
    codes[torch.complex128] = (NUMBER["F64"], 2)
    return codes


CODES = _codes()
BYTE = CODES[torch.uint8][0]

_OPS = {"SUM": _manta.SUM, "AVG": _manta.MEAN, "PRODUCT": _manta.PROD, "MIN": _manta.MIN,
        "MAX": _manta.MAX}
_OPS_OF_BOOL = {"SUM": _manta.MAX, "PRODUCT": _manta.MIN, "MIN": _manta.MIN, "MAX": _manta.MAX,
                "BAND": _manta.MIN, "BOR": _manta.MAX}
_OPS_OF_COMPLEX = {"SUM": _manta.SUM, "AVG": _manta.MEAN}


def number_of(op: Any, dtype: torch.dtype) -> int:
    """libmanta's number of a reduction."""
    name = getattr(op, "op", op).name
    table = (_OPS_OF_BOOL if dtype == torch.bool else _OPS_OF_COMPLEX if dtype.is_complex
             else _OPS)
    if name not in table or dtype not in CODES:
        raise ValueError(f"the backend 'manta' has no ReduceOp.{name} of {dtype}; there are: "
                         f"{', '.join(table)}\nhint: a group made by "
                         f"dist.new_group(backend='gloo') has bitwise operations")
    return table[name]


def items(t: Tensor) -> tuple[int, int]:
    """(how many, of which type) a tensor is to libmanta. What it does not know goes as bytes."""
    code, n = CODES.get(t.dtype, (BYTE, t.element_size()))
    return t.numel() * n, code


def check(*tensors: Tensor) -> None:
    for t in tensors:
        if t.device.type != "cpu" or t.layout != torch.strided:
            raise ValueError(f"the backend 'manta' takes dense CPU tensors, not {t.layout} on "
                             f"{t.device}\nhint: GPUs need Trainer(use_gpu=True), or "
                             f"TorchConfig(backend='nccl')")


def flat(t: Tensor) -> Tensor:
    """The tensor itself if its elements lie in a row, else a copy."""
    check(t)
    return t if t.is_contiguous() else t.contiguous()

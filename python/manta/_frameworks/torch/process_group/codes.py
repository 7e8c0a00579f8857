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
        "MAX": _manta.MAX, "PREMUL_SUM": _manta.SUM}
_BITWISE = {"BAND": _manta.BAND, "BOR": _manta.BOR, "BXOR": _manta.BXOR}
_OPS_OF_BOOL = {"SUM": _manta.MAX, "PRODUCT": _manta.MIN, "MIN": _manta.MIN, "MAX": _manta.MAX,
                **_BITWISE}
_OPS_OF_INTEGERS = {**_OPS, **_BITWISE}
_OPS_OF_COMPLEX = {"SUM": _manta.SUM, "AVG": _manta.MEAN, "PREMUL_SUM": _manta.SUM}


def name_of(op: Any) -> str:
    return str(getattr(op, "op", op).name)


def _table_of(dtype: torch.dtype) -> dict[str, int]:
    if dtype not in CODES:
        return {}
    if dtype == torch.bool:
        return _OPS_OF_BOOL
    if dtype.is_complex:
        return _OPS_OF_COMPLEX
    return _OPS if dtype.is_floating_point else _OPS_OF_INTEGERS


_known: dict[tuple[Any, torch.dtype], tuple[int, bool]] = {}


def reduction(op: Any, dtype: torch.dtype) -> tuple[int, bool]:
    """libmanta's number of a reduction, and whether elements are multiplied first."""
    key = (getattr(op, "op", op), dtype)
    found = _known.get(key)
    if found is None:
        name, table = name_of(op), _table_of(dtype)
        if name not in table:
            raise ValueError(f"the backend 'manta' has no ReduceOp.{name} of {dtype}; there are: "
                             f"{', '.join(table) or 'none of this type'}")
        found = _known[key] = table[name], name == "PREMUL_SUM"
    return found


def multiplied(x: Tensor, op: Any) -> Tensor:
    """What a rank adds to a PREMUL_SUM."""
    factor = op.__getstate__()[1]
    return (x * (factor.cpu() if isinstance(factor, Tensor) else factor)).to(x.dtype)


def items(t: Tensor) -> tuple[int, int]:
    """(how many, of which type) a tensor is to libmanta. What it does not know goes as bytes."""
    code, n = CODES.get(t.dtype, (BYTE, t.element_size()))
    return t.numel() * n, code

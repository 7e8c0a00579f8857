# SPDX-License-Identifier: Apache-2.0
"""Where this process computes, and among how many."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from manta import _manta


def get_device() -> torch.device:
    """This worker's GPU, or the CPU if it was given none.

    A worker that asked for several computes on the current one, the first unless it was changed by
    torch.cuda.set_device(). Plain code takes a GPU if there is one.
    """
    if has_gpu():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def has_gpu() -> bool:
    """A worker sees the GPUs it was given in CUDA_VISIBLE_DEVICES; one that asked for none has no
    right to those of the host."""
    if _manta.in_session() and not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return False
    return bool(torch.cuda.is_available())


def world() -> tuple[int, int]:
    """(rank, size): of the process group if there is one, else of the run; (0, 1) in plain code."""
    if has_group():
        return dist.get_rank(), dist.get_world_size()
    if _manta.in_session():
        rank, size, *_ = _manta.place()
        return rank, size
    return 0, 1


def has_group() -> bool:
    return bool(dist.is_available() and dist.is_initialized())

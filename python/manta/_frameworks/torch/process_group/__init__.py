# SPDX-License-Identifier: Apache-2.0
"""The torch.distributed backend "manta": collectives of libmanta on CPU tensors, and on those of
GPUs through host memory.

Loaded where torch is. A blocking operation is done on the caller's thread; one with async_op=True
is started, and done by a thread of libmanta or by whoever waits for it first. What DDP and FSDP
start in a backward pass counts as blocking if there are no processors to spare: a second thread
would only take turns with the first.
"""

from __future__ import annotations

import os
from types import CodeType, FunctionType, ModuleType
from typing import Any, Iterator

import torch
import torch.distributed as dist

from manta import _manta
from manta._frameworks.torch.process_group import codes, group, operations, roll, stage, work
from manta._frameworks.torch.process_group.codes import BYTE
from manta._frameworks.torch.process_group.group import (CpuBackend, Group, can_be_a_part, devices,
                                                         forget, make, rest, wake)
from manta._frameworks.torch.process_group.operations import NAME

__all__ = ["BYTE", "CpuBackend", "Group", "beside_gpus", "can_be_a_part", "decline_recorder",
           "default_ranks", "devices", "forget", "rest", "take_devices", "wake"]

beside_gpus = False  # whether groups are to be parts of mixed ones
# libmanta's ranks of torch's default group, by rank there. []: all, as they are. None: the group is
# being made by a call of init_process_group that has a world of its own.
default_ranks: list[int] | None = None


def take_devices(*names: str) -> None:
    """Whose tensors groups take from now on."""
    devices[:] = names


def _create(options: Any, _: Any) -> Group | CpuBackend:
    kind = CpuBackend if beside_gpus else Group
    return make(kind, _ranks_of(options), options.timeout, options.store)


def _ranks_of(options: Any) -> list[int]:
    global default_ranks
    members = list(options.global_ranks_in_group)  # none: the default group
    if not members and default_ranks is None:
        default_ranks = _exchange_ranks(options)
    if not default_ranks:
        return members
    return [default_ranks[r] for r in members] or default_ranks


def _exchange_ranks(options: Any) -> list[int]:
    """Who is who, over the store of the new world."""
    options.store.set(f"rank {options.group_rank}", str(_manta.place()[0]))
    return [int(options.store.get(f"rank {r}")) for r in range(options.group_size)]


# --- the flight recorder --------------------------------------------------------------------------

RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def decline_recorder() -> None:
    """torch 2.15 attaches its flight recorder to every group: 12 ms each, and a stack trace for
    every operation. Who waits for whom libmanta says itself; whoever asks for the recorder by its
    variable gets it."""
    recording = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
    if isinstance(recording, set):
        asked = any(os.environ.get(name) for name in RECORDER_SIZES)
        (recording.discard if asked else recording.add)(NAME)


# --- torch.compile --------------------------------------------------------------------------------


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    own = [v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__]
    for value in own:
        for f in vars(value).values() if isinstance(value, type) else [value]:
            f = f.fget if isinstance(f, property) else getattr(f, "__func__", f)
            if isinstance(f, FunctionType):
                yield f


def _leave_alone(code: CodeType) -> None:
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            _leave_alone(inner)


def _hide_from_compiler() -> None:
    """torch calls us from C++, inside of a compiled model: what we do is not to be traced."""
    for module in (codes, group, operations, roll, stage, work):
        for f in _functions(module):
            _leave_alone(f.__code__)


if hasattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy"):  # since torch 2.7
    _hide_from_compiler()
dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])

# SPDX-License-Identifier: Apache-2.0
"""The torch.distributed backend "manta": collectives of libmanta on CPU tensors.

Loaded where torch is. A blocking operation is done on the caller's thread; one with async_op=True
is started, and done by a thread of libmanta or by whoever waits for it first. What DDP and FSDP
start in a backward pass counts as blocking if there are no processors to spare: a second thread
would only take turns with the first.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from manta._process_group.codes import BYTE
from manta._process_group.group import (NAME, CpuBackend, Group, can_be_a_part, forget, make, rest,
                                        wake)

__all__ = ["BYTE", "CpuBackend", "Group", "beside_gpus", "can_be_a_part", "forget", "rest", "wake"]

beside_gpus = False  # whether groups are to be parts of mixed ones


def _create(options: Any, _: Any) -> Group | CpuBackend:
    kind = CpuBackend if beside_gpus else Group
    return make(kind, list(options.global_ranks_in_group), options.timeout)


dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])

# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a worker sees: its own, and those of the other workers of its run on the host, as code
that was written for torchrun or Ray counts on.

(1) cuda:LOCAL_RANK is the worker's own, and the current device. With several GPUs each, the first
    ones of all workers come first.
(2) What CUDA saw when it was first used in a process stays: in a worker that was kept its own GPU
    may then have another number than its rank, and is the current device all the same.
(3) Whether there is a GPU for everybody is the same answer on every rank: they choose their
    backends by it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from manta import _manta
from manta._frameworks import exchange
from manta._runtime import worker

_shown: list[str] = []  # what CUDA has seen, if it has been used


class Gpus(NamedTuple):
    """here: this worker has one. alone: every worker has, and none shares it."""
    here: bool
    alone: bool


def take(backend: str | None) -> Gpus:
    """The worker's own becomes the current device. All ranks call it, with the same backend."""
    if backend == "gloo" or worker.job is None or not worker.job.setting.gpus:
        if backend == "nccl":
            _refuse()
        return Gpus(False, False)
    node = str(_manta.place()[4])
    told = [text.partition(" ") for text in exchange.of_all(f"{node} {worker.own_gpus}")]
    seen = order([ids.split(",") for host, _, ids in told if host == node])
    own = worker.own_gpus.split(",")[0]
    here = bool(own) and _show(seen, own)
    if not here and backend == "nccl":
        _refuse()
    everywhere = all(exchange.of_all("1" if here else ""))
    first = [(host, ids.split(",")[0]) for host, _, ids in told]
    return Gpus(here, everywhere and len(set(first)) == len(first))


def numbers() -> list[int]:
    """Of the worker's own, among those that it sees; in plain code all of them."""
    if worker.job is None or not _shown:
        return list(range(torch.cuda.device_count()))
    return [_shown.index(id) for id in worker.own_gpus.split(",") if id in _shown]


def order(owned: list[list[str]]) -> list[str]:
    """Those of all workers of a host, each once: the first ones of all, the second ones, …"""
    most = max(map(len, owned))
    ids = [ids[i] for i in range(most) for ids in owned if i < len(ids) and ids[i]]
    return list(dict.fromkeys(ids))


def _show(seen: list[str], own: str) -> bool:
    """Whether CUDA finds the worker's own among them; a GPU that was only declared it does not."""
    global _shown
    if not torch.cuda.is_initialized():
        _shown = seen
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_shown)
    number = _shown.index(own) if own in _shown else 0
    if number >= torch.cuda.device_count():
        return False
    torch.cuda.set_device(number)
    return True


def _refuse() -> None:
    raise RuntimeError("TorchConfig(backend='nccl'): this worker has no GPU\n"
                       "hint: Trainer(use_gpu=True) gives one to each")

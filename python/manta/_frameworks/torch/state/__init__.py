# SPDX-License-Identifier: Apache-2.0
"""The tensors of torch in checkpoints."""

from __future__ import annotations

from typing import Any, Callable

import torch

from manta._frameworks.tensors import Dump, Fill, Tensors
from manta._frameworks.torch.state import again, gpu
from manta._frameworks.torch.state.cutting import Lazy
from manta._frameworks.torch.state.packing import TorchPacker
from manta._frameworks.torch.state.pieces import Whole, loaded
from manta._frameworks.torch.state.reading import TorchReader
from manta._runtime import travel
from manta._state.entry import Entry, Packing


class TorchTensors(Tensors):
    def packer(self, found: Packing) -> TorchPacker:
        return TorchPacker(found)

    def reader(self, device: Any, whole: bool) -> TorchReader:
        return TorchReader(device, Whole() if whole else None)

    def lazy_reader(self) -> TorchReader:
        return TorchReader(None, Lazy())

    def unwrapper(self) -> Callable[[Any], Any]:
        wrappers = loaded("torch.nn.parallel", "DistributedDataParallel", "DataParallel")
        cut = loaded("torch.distributed.fsdp", "FullyShardedDataParallel", "FSDPModule")

        def unwrap(o: Any) -> Any:
            if isinstance(o, cut):
                raise ValueError(
                    f"the checkpoint cannot be saved: each rank has only pieces of the FSDP model "
                    f"({type(o).__name__})\nhint: save its state_dict(), with sharded=True if that "
                    f"holds DTensors")
            return getattr(o, "module") if isinstance(o, wrappers) else o
        return unwrap

    def staged(self, entries: list[Entry]) -> list[Entry]:
        return gpu.staged(entries)

    def filler(self, entries: list[Entry]) -> Fill | None:
        return gpu.filler(entries)

    def save_again(self, obj: Any) -> bool:
        return again.save(obj)

    def remember(self, entries: list[Entry], stream: bytes) -> None:
        again.remember(entries, stream)

    def array(self, kind: str, shape: tuple[int, ...], view: Any) -> Any:
        dtype = getattr(torch, kind)
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(view, dtype=dtype).view(shape)

    def dumper(self) -> tuple[Dump, str]:
        return lambda value, file: torch.save(value, file, pickle_module=travel), ".pt"


TENSORS = TorchTensors()

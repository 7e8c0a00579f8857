# SPDX-License-Identifier: Apache-2.0
"""The tensors of an object on their way into a checkpoint: which memory they share, and which of it
becomes an entry."""

from __future__ import annotations

from functools import cache
from typing import Any, Iterable, NamedTuple

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from manta import _pickled
from manta._frameworks.tensors import Packer
from manta._frameworks.torch.state import gpu, pieces
from manta._state.entry import Form, Packing, Path, typed


class _Seen(NamedTuple):
    """A tensor that the pickler came across, and the memory it lies in."""
    number: int
    tensor: Any
    name: Path | None
    device: str
    start: int
    end: int
    contiguous: bool


@cache
def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def form_of(t: Any) -> Form:
    return typed(_name_of(t.dtype), tuple(t.shape), t.element_size())


def address_of(t: Any) -> int:
    """0: it is on a GPU, and is filled in."""
    return 0 if gpu.on_gpu(t) else int(t.data_ptr())


def _span(t: Any) -> int:
    """Elements of memory from the first that a tensor has to its last."""
    return sum((n - 1) * step for n, step in zip(t.shape, t.stride())) + 1 if t.numel() else 0


class TorchPacker(Packer):
    kinds = (torch.Tensor,)

    def __init__(self, found: Packing):
        self.found = found
        self.seen: list[_Seen] = []
        self.devices: dict[Any, str] = {}  # that there are tensors on
        self.cut = pieces.kinds()
        self.pieces = pieces.Pieces(found)

    def inside(self, o: Any) -> Iterable[tuple[Any, Any]] | None:
        if isinstance(o, torch.nn.Module):
            items: Iterable[tuple[Any, Any]] = o.state_dict(keep_vars=True).items()
            return items
        return None

    # --- one after the other ----------------------------------------------------------------------

    def reduce(self, o: Any) -> Any:
        if isinstance(o, self.cut):
            if not self.found.sharded:
                pieces.refuse(o, self.found)
            if pieces.is_dtensor(o):
                return self.pieces.reduce(o)
        return self._reduce_tensor(o)

    def _reduce_tensor(self, t: Any) -> Any:
        cls = type(t)
        plain = cls is torch.Tensor or cls is torch.nn.Parameter
        if not plain and not _is_simple_subclass(t):
            return NotImplemented
        if t.layout is not torch.strided or t.is_quantized or t.device.type == "meta" or (
                t.is_nested):
            return NotImplemented
        state = vars(t) or None
        requires_grad = t.requires_grad
        if not plain:
            with torch._C.DisableTorchFunctionSubclass():
                path = self.found.path_of(t)
                t = t.detach().as_subclass(torch.Tensor)
                if path:
                    self.found.paths[id(t)] = (path, t)
        return _pickled.tensor, (self._see(t), t.dtype, tuple(t.shape), cls, requires_grad,
                                 t.device.type != "cpu", state)

    def _see(self, t: Any) -> int:
        """Notes a plain tensor and gives its number."""
        name = self.found.path_of(t)
        if t.requires_grad:
            t = t.detach()
        if t.is_conj() or t.is_neg():
            t = t.resolve_conj().resolve_neg()
        start, device, contiguous = t.data_ptr(), t.device, t.is_contiguous()
        if device not in self.devices:
            self.devices[device] = str(device)
        bytes_ = t.nbytes if contiguous else _span(t) * t.element_size()
        number = self.found.number()
        self.seen.append(_Seen(number, t, name, self.devices[device], start, start + bytes_,
                               contiguous))
        return number

    # --- when all are known -----------------------------------------------------------------------

    def place_all(self) -> None:
        """In the order in which they were seen: the next save has the same one."""
        for heap in sorted(self._heaps()):
            self._place([self.seen[i] for i in heap])
        if any(d.type not in ("cpu", "cuda") for d in self.devices):
            self._fetch()

    def _fetch(self) -> None:
        """Entries on a device that is neither this host's memory nor a GPU of CUDA's kind."""
        for i, e in enumerate(self.found.entries):
            if gpu.is_elsewhere(e.source):
                host = e.source.cpu()
                self.found.entries[i] = e._replace(source=host, address=host.data_ptr())

    def _heaps(self) -> list[list[int]]:
        """Tensors together whose memory overlaps."""
        order = sorted((one.device, one.start, -one.end, i) for i, one in enumerate(self.seen))
        heaps: list[list[int]] = []
        last, last_end = "", 0
        for device, start, minus_end, i in order:
            if heaps and device == last and start < min(last_end, -minus_end):
                heaps[-1].append(i)
                last_end = max(last_end, -minus_end)
            else:
                heaps.append([i])
                last, last_end = device, -minus_end
        return [sorted(heap) for heap in heaps]

    def _place(self, heap: list[_Seen]) -> None:
        if len(heap) == 1:
            self._place_one(heap[0])
            return
        start = min(one.start for one in heap)
        end = max(one.end for one in heap)
        for one in heap:
            if (one.start, one.end) == (start, end) and one.contiguous:
                self._place_views(heap, start, self._add(one.name, one.tensor))
                return
        raw = _raw(heap, start, end)
        if raw is not None:
            self._place_views(heap, start, self._add(None, raw))
            return
        for one in heap:  # storages over the same memory that know nothing of each other
            self._place_one(one)

    def _place_one(self, one: _Seen) -> None:
        t = one.tensor
        if not one.contiguous:
            expanded = one.end - one.start < t.numel() * t.element_size()
            raw = _raw([one], one.start, one.end) if expanded else None
            if raw is not None:  # written as little as it is
                self._place_views([one], one.start, self._add(None, raw))
                return
            t = t.contiguous()
        self.found.places[one.number] = (self._add(one.name, t), 0, None)

    def _place_views(self, heap: list[_Seen], start: int, entry: int) -> None:
        for one in heap:
            stride = None if one.contiguous else tuple(one.tensor.stride())
            self.found.places[one.number] = (entry, one.start - start, stride)

    def _add(self, path: Path | None, t: Any) -> int:
        """t is contiguous."""
        return self.found.add(path, form_of(t), t, address_of(t))


def _raw(heap: list[_Seen], start: int, end: int) -> Any:
    """The memory from start to end as a tensor, if it lies in one storage."""
    t = heap[0].tensor
    storage = t.untyped_storage()
    at = start - storage.data_ptr()
    if at < 0 or end - storage.data_ptr() > storage.nbytes():
        return None
    same = all(one.tensor.dtype == t.dtype for one in heap)
    dtype = t.dtype if same else torch.uint8
    size = t.element_size() if same else 1
    raw = torch.empty(0, dtype=dtype, device=t.device)
    return raw.set_(storage, at // size, ((end - start) // size,), (1,))


def _is_simple_subclass(t: Any) -> bool:
    """A class that adds methods and attributes, not one with tensors inside or its own pickling."""
    cls = type(t)
    reduces = (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__)
    own = cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return cls.__reduce_ex__ in reduces and not own and not is_traceable_wrapper_subclass(t)

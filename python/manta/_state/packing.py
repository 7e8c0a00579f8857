# SPDX-License-Identifier: Apache-2.0
"""From an object to the tensors and the value of a checkpoint."""

from __future__ import annotations

import io
import pickle
from typing import Any

from manta import _manta
from manta._runtime import travel
from manta._state import pieces
from manta._state.entry import (FORMAT, MAX_DEPTH, NUMBER, STREAM, STREAM_UNIT, Entry, Packing,
                                Path, Row, loaded_torch)
from manta._state.gpu import elsewhere, on_gpu, stage


def pack(obj: Any, sharded: bool = False) -> tuple[list[Row], dict[str, Any], Any]:
    """The object as the tensors and the value of a checkpoint, and what must stay alive until they
    are saved. No memory of a contiguous tensor is copied, but for that of a device: it comes to
    host memory that the next call uses again. sharded: it may hold this rank's pieces of
    tensors."""
    found, stream = find(obj, sharded)
    away = [i for i, e in enumerate(found.entries) if on_gpu(e.source)]
    staged = stage([found.entries[i].source for i in away]) if away else []
    for i, host in zip(away, staged):
        found.entries[i] = found.entries[i]._replace(source=host)
    return rows_of(found.entries, stream), {"format": FORMAT}, (found, stream)


def find(obj: Any, sharded: bool = False) -> tuple[Packing, bytes]:
    """All entries of an object, and its stream."""
    found = Packing()
    found.name_leaves(obj)
    body = io.BytesIO()
    try:
        _Pickler(body, found, sharded).dump(obj)
    except pieces.NotWhole as e:
        raise ValueError(str(e)) from None
    except Exception as e:
        raise _explained(obj, e) from e
    found.place_all()
    if any(d.type not in ("cpu", "cuda") for d in found.devices):
        found.entries = [e._replace(source=e.source.cpu()) if elsewhere(e.source) else e
                         for e in found.entries]
    head = pickle.dumps(([e.name for e in found.entries], found.places, found.buffers), 5)
    pad = -(len(head) + body.tell()) % STREAM_UNIT
    return found, b"".join((head, body.getbuffer(), bytes(pad)))


def rows_of(entries: list[Entry], stream: bytes) -> list[Row]:
    rows = [(e.name, e.dtype, e.shape, address_of(e.source)) for e in entries]
    rows.append((STREAM, NUMBER["U8"], (len(stream),), _manta.address(stream)))
    return rows


def address_of(source: Any) -> int:
    """0: it is on a GPU, and is filled in."""
    torch = loaded_torch()
    if torch and isinstance(source, torch.Tensor):
        return 0 if on_gpu(source) else source.data_ptr()
    return _manta.address(source)


def _explained(obj: Any, error: Exception) -> Exception:
    """The same failure, saying which entry of the object it is."""
    path: Path = ()
    while isinstance(obj, (dict, list, tuple)):
        inside = obj.items() if isinstance(obj, dict) else enumerate(obj)
        bad = next(((k, v, e) for k, v in inside if (e := _failure(v)) is not None), None)
        if bad is None or len(path) > MAX_DEPTH:
            break
        path, obj, error = (*path, str(bad[0])), bad[1], bad[2]
    what = f'its entry "{".".join(path)}"' if path else "it"
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
    return pickle.PicklingError(f"the checkpoint cannot be saved: {what} ({kind}) cannot be "
                                f"pickled: {type(error).__name__}: {error}")


def _failure(obj: Any) -> Exception | None:
    try:
        _Pickler(io.BytesIO(), Packing(), True).dump(obj)
    except Exception as e:
        return e
    return None


# --- the pickle -----------------------------------------------------------------------------------


class _Pickler(travel.Pickler):
    def __init__(self, file: io.BytesIO, found: Packing, sharded: bool):
        super().__init__(file, protocol=5, buffer_callback=found.take_buffer)
        self.found = found
        self.sharded = sharded
        self.torch = loaded_torch()
        self.cut = pieces.kinds()

    def reducer_override(self, obj: Any) -> Any:
        if self.torch and isinstance(obj, self.torch.Tensor):
            cut = isinstance(obj, self.cut)
            if cut and not self.sharded:
                pieces.refuse(obj, self.found)
            reduced = (pieces.reduce(obj, self.found) if cut and pieces.is_dtensor(obj)
                       else _reduce_tensor(self.torch, obj, self.found))
            if reduced is not NotImplemented:
                return reduced
        return super().reducer_override(obj)


def _reduce_tensor(torch: Any, t: Any, found: Packing) -> Any:
    cls = type(t)
    plain = cls is torch.Tensor or cls is torch.nn.Parameter
    if not plain and not _simple_subclass(torch, t):
        return NotImplemented
    if t.layout is not torch.strided or t.is_quantized or t.device.type == "meta" or t.is_nested:
        return NotImplemented
    state = vars(t) or None
    requires_grad = t.requires_grad
    if not plain:
        with torch._C.DisableTorchFunctionSubclass():
            path, _ = found.paths.get(id(t), (None, None))
            t = t.detach().as_subclass(torch.Tensor)
            if path:
                found.paths[id(t)] = (path, t)
    return tensor, (found.see(t), t.dtype, tuple(t.shape), cls, requires_grad,
                    t.device.type != "cpu", state)


def _simple_subclass(torch: Any, t: Any) -> bool:
    """A class that adds methods and attributes, not one with tensors inside or its own pickling."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass
    cls = type(t)
    reduces = (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__)
    own = cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return cls.__reduce_ex__ in reduces and not own and not is_traceable_wrapper_subclass(t)


def tensor(*args: Any) -> Any:
    """Stands in a pickle for a tensor; what reads it puts its own function in its place."""
    raise pickle.UnpicklingError("this is a checkpoint of manta: open it with manta")

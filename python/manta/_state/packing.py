# SPDX-License-Identifier: Apache-2.0
"""From an object to the tensors and the value of a checkpoint."""

from __future__ import annotations

import io
import pickle
from typing import Any

from manta import _frameworks, _manta
from manta._runtime import travel
from manta._state.entry import (FORMAT, MAX_DEPTH, NUMBER, STREAM, STREAM_UNIT, Entry, NotWhole,
                                Packing, Path, Row)


def pack(obj: Any, sharded: bool = False) -> tuple[list[Row], dict[str, Any], Any]:
    """The object as the tensors and the value of a checkpoint, and what must stay alive until they
    are saved. No memory of a contiguous tensor is copied, but for that of a device: it comes to
    host memory that the next call uses again. sharded: it may hold this rank's pieces of
    tensors."""
    found, stream = find(obj, sharded)
    for tensors in _frameworks.all_tensors():
        found.entries = tensors.staged(found.entries)
    return rows_of(found.entries, stream), {"format": FORMAT}, (found, stream)


def find(obj: Any, sharded: bool = False) -> tuple[Packing, bytes]:
    """All entries of an object, and its stream."""
    found = Packing(sharded)
    found.name_leaves(obj)
    body = io.BytesIO()
    try:
        _Pickler(body, found).dump(obj)
    except NotWhole as e:
        raise ValueError(str(e)) from None
    except Exception as e:
        raise _explained(obj, e) from e
    for packer in found.packers:
        packer.place_all()
    head = pickle.dumps(([e.name for e in found.entries], found.places, found.buffers), 5)
    pad = -(len(head) + body.tell()) % STREAM_UNIT
    return found, b"".join((head, body.getbuffer(), bytes(pad)))


def rows_of(entries: list[Entry], stream: bytes) -> list[Row]:
    rows = [(e.name, e.dtype, e.shape, e.address) for e in entries]
    rows.append((STREAM, NUMBER["U8"], (len(stream),), _manta.address(stream)))
    return rows


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
        _Pickler(io.BytesIO(), Packing(sharded=True)).dump(obj)
    except Exception as e:
        return e
    return None


class _Pickler(travel.Pickler):
    def __init__(self, file: io.BytesIO, found: Packing):
        super().__init__(file, protocol=5, buffer_callback=found.take_buffer)
        self.packers = found.packers

    def reducer_override(self, obj: Any) -> Any:
        for packer in self.packers:
            if isinstance(obj, packer.kinds):
                reduced = packer.reduce(obj)
                if reduced is not NotImplemented:
                    return reduced
        return super().reducer_override(obj)

# SPDX-License-Identifier: Apache-2.0
"""Batches as (x, y) tensors of torch.

The rows of a batch are put together in C, straight into the memory of two new tensors, without the
GIL. For a GPU that memory is pinned, and copied on a stream of its own ahead of its use.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import torch

from manta import _manta
from manta.data.formats import to_numpy
from manta.data.iterator import Batches, warn_of_empty
from manta.data.plan import BOOL, NUMBER, Field

if TYPE_CHECKING:
    from manta.data.dataset import Dataset

_F32, _I64 = _manta.DTYPES.index("F32"), _manta.DTYPES.index("I64")
_FLOATS = tuple(_manta.DTYPES.index(name) for name in ("F16", "BF16", "F32", "F64"))
AHEAD = 2  # copies to a GPU that are under way

Pair = tuple[torch.Tensor, torch.Tensor]


def torch_batches(d: Dataset, options: dict[str, Any], label: str | None,
                  features: Sequence[str] | None, device: Any, prefetch: int) -> TorchBatches:
    names = d.columns()
    label = names[-1] if label is None else label
    if features is None:
        features = [n for n in names if n != label]
    elif isinstance(features, str):
        features = [features]
    if not features:
        raise ValueError(f"to_torch: there is no column beside {label!r} for x\n"
                         "hint: feature_columns=[…], or iter_batches(batch_format=\"torch\")")
    wanted = list(features) if label in features else [*features, label]
    chosen = d.select_columns(wanted)  # what is not wanted is not parsed
    fields = chosen.rows.fields()
    for f in fields:
        if f.kind > BOOL:
            raise TypeError(f"to_torch: column {f.name!r} has text, of which there is no number\n"
                            "hint: feature_columns=[…] without it, or add_column() a number")
    here = torch.device(device) if device is not None else torch.device("cpu")
    options["prefetch"] = prefetch if here.type == "cpu" and prefetch else -1
    place = wanted.index(label)
    return TorchBatches(chosen, options, fields[:len(features)], fields[place], place, here,
                        prefetch or AHEAD)


def tensors(batch: _manta.Batch, fields: Sequence[Field]) -> dict[str, torch.Tensor]:
    """A tensor per column, of its own type."""
    for f in fields:
        if f.kind > BOOL:
            raise TypeError(f"column {f.name!r} has text, of which torch makes no tensor\n"
                            "hint: select_columns() or drop_columns() first")
    arrays = to_numpy(batch, fields)
    return {name: torch.from_numpy(a.astype("f4" if a.dtype == object else a.dtype))  # a copy
            for name, a in arrays.items()}


def _shape(fields: Sequence[Field]) -> tuple[int, ...]:
    """Of a row of the matrix that these columns make."""
    if len(fields) == 1 and fields[0].shape:
        return fields[0].shape
    width = 0
    for f in fields:
        elements = 1
        for n in f.shape:
            elements *= n
        width += elements
    return (width,)


class TorchBatches(Batches[Pair]):
    """(x, y) after (x, y); see `Batches`."""

    def __init__(self, d: Dataset, options: dict[str, Any], x: Sequence[Field], y: Field,
                 y_column: int, device: torch.device, ahead: int) -> None:
        super().__init__(d.plan, options, _no_conversion)
        self._rows = options["batch_rows"] // options["ranks"]
        self._x = (self._rows, *_shape(x))
        self._y = (self._rows, *_shape([y]))
        is_float = y.kind == NUMBER and y.dtype in _FLOATS
        self._y_dtype = torch.float32 if is_float else torch.int64
        self._matrices = [(list(range(len(x))), _F32), ([y_column], _F32 if is_float else _I64)]
        self._device = device
        self._ahead = ahead
        self._given: dict[str, int] | None = None  # the position, where copies are ahead of it

    def _opened(self, loader: _manta.Loader) -> None:
        loader.matrices(self._matrices)

    def _next(self, loader: _manta.Loader) -> Pair | None:
        x, y = torch.empty(self._x), torch.empty(self._y, dtype=self._y_dtype)
        rows = loader.fill(self._rows, x.data_ptr(), y.data_ptr())
        if rows == self._rows:
            return (x, y) if self._device.type == "cpu" else (x.to(self._device),
                                                              y.to(self._device))
        if rows < 0:
            return None
        if rows == 0:
            warn_of_empty()
        return x[:rows].to(self._device), y[:rows].to(self._device)

    def _go_on(self) -> Iterator[Pair]:
        if self._device.type == "cuda":
            return self._copied()
        return super()._go_on()

    def _copied(self) -> Iterator[Pair]:
        """To a GPU, ahead of use."""
        loader = self._get()
        stage = _Stage(self._x, self._y, self._y_dtype, self._device, self._ahead + 1)
        waiting: deque[tuple[Pair, Any, dict[str, int]]] = deque()
        self._given = loader.save()
        loader.mark(self._given)
        more = True
        try:
            while True:
                while more and len(waiting) < self._ahead:
                    made = stage.fill(loader)
                    more = made is not None
                    if made is not None:
                        waiting.append((*made, _place(loader, self._given)))
                if not waiting:
                    break
                pair, event, self._given = waiting.popleft()
                loader.mark(self._given)
                stream = torch.cuda.current_stream(self._device)
                stream.wait_event(event)
                for tensor in pair:  # its memory is not used again before that stream is done
                    tensor.record_stream(stream)
                yield pair
        finally:
            if more and self._given is not None and self._loader is loader:
                loader.load(self._given)  # what was copied ahead comes again
            self._given = None
        self._end(loader)

    def state_dict(self) -> dict[str, int]:
        return dict(self._given) if self._given is not None else super().state_dict()


def _place(loader: _manta.Loader, given: dict[str, int]) -> dict[str, int]:
    """Behind the last batch that was taken, while what counts is the last one that was given."""
    loader.mark(None)
    at = loader.save()
    loader.mark(given)
    return at


def _no_conversion(batch: _manta.Batch, fields: Sequence[Field]) -> Pair:
    raise AssertionError("tensors are filled, not converted")


class _Stage:
    """Pinned memory that batches go through, one place after the other."""

    def __init__(self, x: tuple[int, ...], y: tuple[int, ...], y_dtype: torch.dtype,
                 device: torch.device, places: int) -> None:
        self._rows = x[0]
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._places = [(torch.empty(x, pin_memory=True),
                         torch.empty(y, dtype=y_dtype, pin_memory=True),
                         torch.cuda.Event()) for _ in range(places)]
        self._at = 0

    def fill(self, loader: _manta.Loader) -> tuple[Pair, Any] | None:
        """The next batch, whose copy has begun, and the event of its end."""
        x, y, event = self._places[self._at]
        self._at = (self._at + 1) % len(self._places)
        event.synchronize()  # the copy that went through this place before
        rows = loader.fill(self._rows, x.data_ptr(), y.data_ptr())
        if rows < 0:
            return None
        if rows == 0:
            warn_of_empty()
        with torch.cuda.stream(self._stream):
            pair = (x[:rows].to(self._device, non_blocking=True),
                    y[:rows].to(self._device, non_blocking=True))
            done = torch.cuda.Event()
            done.record(self._stream)
            event.record(self._stream)
        return pair, done

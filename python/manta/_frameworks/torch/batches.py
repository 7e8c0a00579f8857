# SPDX-License-Identifier: Apache-2.0
"""Batches as (x, y) tensors of torch.

The rows of a batch are put together in C, straight into the memory of two new tensors, without the
GIL. For a GPU that memory is pinned, and copied on a stream of its own ahead of its use.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import torch

from manta import _manta
from manta._frameworks.torch.device import get_device
from manta.data.formats import Converter, to_numpy
from manta.data.iterator import Batches, warn_of_empty
from manta.data.plan import BOOL, NUMBER, Field, Plan

if TYPE_CHECKING:
    from manta.data.dataset import Dataset

_NUMBERS = {torch.float32: _manta.DTYPES.index("F32"), torch.float64: _manta.DTYPES.index("F64"),
            torch.int64: _manta.DTYPES.index("I64")}
_FLOATS = tuple(_manta.DTYPES.index(name) for name in ("F16", "BF16", "F32", "F64"))
AHEAD = 2  # copies to a GPU that are under way

Pair = tuple[Any, torch.Tensor]

__all__ = ["Shapes", "TorchBatches", "converter", "get_device", "tensors", "torch_batches"]


# --- (x, y) ---------------------------------------------------------------------------------------


@dataclass
class Shapes:
    """What to_torch() makes of columns; the names are those of its arguments."""
    label: str | None = None
    features: Any = None  # a name, names, lists of names, or a dict of them
    label_dtype: Any = None
    feature_dtypes: Any = None  # one, or one for each of the lists
    unsqueeze_label: bool = True
    unsqueeze_features: bool = True


@dataclass
class _Matrix:
    """Columns that go into one tensor."""
    columns: list[int]
    shape: tuple[int, ...]  # of a row
    made: torch.dtype  # F32, F64 or I64: that C writes
    given: torch.dtype
    flat: bool = False  # one number per row has no dimension of its own

    def finish(self, t: torch.Tensor) -> torch.Tensor:
        t = t if self.given is self.made else t.to(self.given)
        return t.squeeze(1) if self.flat and self.shape == (1,) else t


def torch_batches(d: Dataset, options: dict[str, Any], s: Shapes, device: Any, prefetch: int
                  ) -> TorchBatches:
    names = d.columns()
    label = names[-1] if s.label is None else s.label
    groups, form = _groups([n for n in names if n != label] if s.features is None else s.features)
    if not groups or not all(groups):
        raise ValueError(f"to_torch: there is no column beside {label!r} for x\n"
                         "hint: feature_columns=[…], or iter_batches(batch_format=\"torch\")")
    wanted = list(dict.fromkeys([*(n for g in groups for n in g), label]))
    fields = {f.name: f for f in d.select_columns(wanted).rows.fields()}
    for f in fields.values():
        if f.kind > BOOL:
            raise TypeError(f"to_torch: column {f.name!r} has text, of which there is no number\n"
                            "hint: feature_columns=[…] without it, or add_column() a number")
    here = torch.device(device) if device is not None else torch.device("cpu")
    options["prefetch"] = prefetch if here.type == "cpu" and prefetch else -1
    dtypes = _dtypes(s.feature_dtypes, s.features, len(groups))
    matrices = [_matrix([fields[n] for n in g], [wanted.index(n) for n in g], dtype or
                        torch.float32, not s.unsqueeze_features)
                for g, dtype in zip(groups, dtypes)]
    matrices.append(_matrix([fields[label]], [wanted.index(label)], s.label_dtype or
                            _label_dtype(fields[label]), not s.unsqueeze_label))
    chosen = d.only(wanted, _singles(wanted, fields, matrices))  # nothing else is parsed
    return TorchBatches(chosen, options, matrices, form, here, prefetch or AHEAD, d.plan)


def _singles(names: list[str], fields: Mapping[str, Field], matrices: Sequence[_Matrix]
             ) -> list[str]:
    """Columns of float64 that nothing but float32 is made of."""
    wide = {c for m in matrices if m.made is not torch.float32 for c in m.columns}
    return [n for i, n in enumerate(names) if i not in wide and fields[n].kind == NUMBER
            and fields[n].dtype == _NUMBERS[torch.float64]]


def _groups(features: Any) -> tuple[list[list[str]], Callable[[list[torch.Tensor]], Any]]:
    """Columns of each tensor of x, and what x is made of these tensors."""
    if isinstance(features, str):
        return [[features]], _alone
    if isinstance(features, Mapping):
        keys = list(features)
        return ([[v] if isinstance(v, str) else list(v) for v in features.values()],
                lambda x: dict(zip(keys, x)))
    given = list(features)
    if any(not isinstance(g, str) for g in given):
        return [[g] if isinstance(g, str) else list(g) for g in given], lambda x: x
    return ([given] if given else []), _alone


def _alone(x: list[torch.Tensor]) -> torch.Tensor:
    return x[0]


def _dtypes(given: Any, features: Any, count: int) -> list[Any]:
    if isinstance(given, Mapping) and isinstance(features, Mapping):
        return [given.get(k) for k in features]
    if isinstance(given, (list, tuple)):
        if len(given) != count:
            raise ValueError(f"to_torch: {len(given)} feature_column_dtypes for {count} tensors\n"
                             "hint: one for all, or one for each list of feature_columns")
        return list(given)
    return [given] * count


def _label_dtype(label: Field) -> torch.dtype:
    is_float = label.kind == NUMBER and label.dtype in _FLOATS
    return torch.float32 if is_float else torch.int64


def _matrix(fields: Sequence[Field], columns: list[int], given: torch.dtype, flat: bool
            ) -> _Matrix:
    made = given if given in _NUMBERS else torch.int64
    if given.is_floating_point and given not in _NUMBERS:
        made = torch.float32
    return _Matrix(columns, _shape(fields), made, given, flat)


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

    def __init__(self, d: Dataset, options: dict[str, Any], matrices: list[_Matrix],
                 form: Callable[[list[torch.Tensor]], Any], device: torch.device, ahead: int,
                 asked: Plan) -> None:
        super().__init__(d.plan, options, _no_conversion, asked)
        self._rows = options["batch_rows"] // options["ranks"]
        self._matrices = matrices
        self._sizes = [((self._rows, *m.shape), m.made) for m in matrices]
        self._form = form
        self._device = device
        self._ahead = ahead
        # (x, y) as they were filled, and where they are to be
        self._plain = (device.type == "cpu" and form is _alone and len(matrices) == 2
                       and all(m.made is m.given and not m.flat for m in matrices))
        self._given: dict[str, int] | None = None  # the position, where copies are ahead of it

    def _opened(self, loader: _manta.Loader) -> None:
        loader.matrices([(m.columns, _NUMBERS[m.made]) for m in self._matrices])

    def _next(self, loader: _manta.Loader) -> Pair | None:
        made = [torch.empty(size, dtype=dtype) for size, dtype in self._sizes]
        rows = loader.fill(self._rows, [t.data_ptr() for t in made])
        if rows == self._rows and self._plain:
            return made[0], made[1]
        if rows < 0:
            return None
        if rows == 0:
            warn_of_empty()
        if rows < self._rows:
            made = [t[:rows] for t in made]
        if self._device.type != "cpu":
            made = [t.to(self._device) for t in made]
        return self._pair(made)

    def _pair(self, made: list[torch.Tensor]) -> Pair:
        *x, y = [m.finish(t) for m, t in zip(self._matrices, made)]
        return self._form(x), y

    def _go_on(self) -> Iterator[Pair]:
        if self._device.type == "cuda":
            return self._copied()
        return super()._go_on()

    def _copied(self) -> Iterator[Pair]:
        """To a GPU, ahead of use."""
        loader = self._get()
        stage = _Stage(self._sizes, self._device, self._ahead + 1)
        waiting: deque[tuple[list[torch.Tensor], Any, dict[str, int]]] = deque()
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
                tensors, event, self._given = waiting.popleft()
                loader.mark(self._given)
                stream = torch.cuda.current_stream(self._device)
                stream.wait_event(event)
                for tensor in tensors:  # its memory is not used again before that stream is done
                    tensor.record_stream(stream)
                yield self._pair(tensors)
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

    def __init__(self, sizes: list[tuple[tuple[int, ...], torch.dtype]], device: torch.device,
                 places: int) -> None:
        self._rows = sizes[0][0][0]
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._places = [([torch.empty(size, dtype=dtype, pin_memory=True) for size, dtype in sizes],
                         torch.cuda.Event()) for _ in range(places)]
        self._at = 0

    def fill(self, loader: _manta.Loader) -> tuple[list[torch.Tensor], Any] | None:
        """The next batch, whose copy has begun, and the event of its end."""
        place, event = self._places[self._at]
        self._at = (self._at + 1) % len(self._places)
        event.synchronize()  # the copy that went through this place before
        rows = loader.fill(self._rows, [t.data_ptr() for t in place])
        if rows < 0:
            return None
        if rows == 0:
            warn_of_empty()
        with torch.cuda.stream(self._stream):
            made = [t[:rows].to(self._device, non_blocking=True) for t in place]
            done = torch.cuda.Event()
            done.record(self._stream)
            event.record(self._stream)
        return made, done


# --- a dict of tensors ----------------------------------------------------------------------------


def tensors(batch: _manta.Batch, fields: Sequence[Field]) -> dict[str, torch.Tensor]:
    """A tensor per column, of its own type."""
    for f in fields:
        if f.kind > BOOL:
            raise TypeError(f"column {f.name!r} has text, of which torch makes no tensor\n"
                            "hint: select_columns() or drop_columns() first, or collate_fn=")
    arrays = to_numpy(batch, fields)
    return {name: torch.from_numpy(a.astype("f4" if a.dtype == object else a.dtype))  # a copy
            for name, a in arrays.items()}


def converter(dtypes: Any, device: Any, collate: Callable[[dict[str, Any]], Any] | None
              ) -> Converter:
    """Of iter_torch_batches(): a dict of tensors, or what `collate` makes of a dict of arrays, on
    the device."""
    if collate is not None and dtypes is not None:
        raise ValueError("iter_torch_batches: collate_fn makes the tensors, and their dtypes\n"
                         "hint: leave dtypes= out")
    here = torch.device(device) if device is not None else torch.device("cpu")

    def convert(batch: _manta.Batch, fields: Sequence[Field]) -> Any:
        if collate is not None:
            arrays = {k: a if a.flags.writeable else a.copy()
                      for k, a in to_numpy(batch, fields).items()}
            return _moved(collate(arrays), here)
        made = tensors(batch, fields)
        return {k: t.to(here, dtypes.get(k) if isinstance(dtypes, Mapping) else dtypes)
                for k, t in made.items()}
    if isinstance(dtypes, Mapping):
        _check_dtypes(dtypes)
    return convert


def _check_dtypes(dtypes: Mapping[str, Any]) -> None:
    for name, dtype in dtypes.items():
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"iter_torch_batches: dtypes={{{name!r}: {dtype!r}}}: a dtype of torch "
                            "is wanted, such as torch.float32")


def _moved(made: Any, device: torch.device) -> Any:
    """Tensors, and those in dicts, lists and tuples, on the device."""
    if device.type == "cpu":
        return made
    if isinstance(made, torch.Tensor):
        return made.to(device)
    if isinstance(made, Mapping):
        return {k: _moved(v, device) for k, v in made.items()}
    if isinstance(made, (list, tuple)) and type(made) in (list, tuple):
        return type(made)(_moved(v, device) for v in made)
    return made

# SPDX-License-Identifier: Apache-2.0
"""Functions of the user's over rows and batches, as steps of a plan.

A function travels with the data set as a train function does, and is called before global batches
are cut. In a run a process of the host's reader calls it, once for all workers there; where there
is no reader, or the function cannot be pickled, the threads that read rows do. The columns that it
gives are learned from a call with the first rows.
"""

from __future__ import annotations

import array
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

from manta import _manta
from manta.data import lists
from manta.data.columns import (Column, column_of, frame_columns, numpy_column,
                                series_column)
from manta.data.formats import converter, rows_of
from manta.data.plan import Field

if TYPE_CHECKING:
    from manta.data.dataset import Dataset

MAP, ADD, FILTER, ROWS = range(4)  # manta_apply_kind
_Given = tuple[object, object]


@dataclass(eq=False)
class Function:
    """What a step calls. A class is made an object of in each process, before its first call."""
    verb: str  # the method that it was given to
    fn: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    made_of: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    batch_format: str | None = None  # None: rows
    column: str = ""  # that add_column gives
    types: dict[str, str] | None = None
    shares: bool = False  # arrays may be those of the batch, which cannot be written to

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"{self.verb}({self.fn!r}): a function is wanted, or an expression "
                            "such as col(\"age\") > 30")
        self._lock = threading.Lock()
        self._object: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_object")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._object = None

    @property
    def name(self) -> str:
        return f"{self.verb}({getattr(self.fn, '__qualname__', type(self.fn).__name__)})"

    def call(self, given: Any) -> Any:
        fn = self.fn
        if isinstance(fn, type):
            with self._lock:
                if self._object is None:
                    self._object = fn(*self.made_of[0], **self.made_of[1])
            fn = self._object
        return fn(given, *self.args, **self.kwargs)


# --- rows -----------------------------------------------------------------------------------------


def _filter(f: Function, batch: _manta.Batch, fields: Sequence[Field]) -> _Given:
    keep = [i for i, row in enumerate(rows_of(batch, fields)) if f.call(row)]
    return None, array.array("I", keep)


def _map(f: Function, batch: _manta.Batch, fields: Sequence[Field]) -> _Given:
    made = [f.call(row) for row in rows_of(batch, fields)]
    return _stream_of_rows(f, made), None


def _flat_map(f: Function, batch: _manta.Batch, fields: Sequence[Field]) -> _Given:
    made: list[Any] = []
    origin = array.array("I")
    for i, row in enumerate(rows_of(batch, fields)):
        got = f.call(row)
        if isinstance(got, (str, bytes, Mapping)) or not hasattr(got, "__iter__"):
            raise TypeError(f"{f.name}: the function gives a {type(got).__name__}, not a list of "
                            "rows\nhint: map() for one row of each row")
        before = len(made)
        made.extend(got)
        origin.extend([i] * (len(made) - before))
    return _stream_of_rows(f, made), origin


def _stream_of_rows(f: Function, rows: list[Any]) -> object:
    """Rows are dicts; anything else is the column "item", as from_items has it."""
    if any(r is None for r in rows):
        raise TypeError(f"{f.name}: the function gives None\nhint: it has to return the row; "
                        "filter() leaves out rows")
    dicts = [isinstance(r, Mapping) for r in rows]
    if any(dicts) and not all(dicts):
        other = type(rows[dicts.index(False)]).__name__
        raise TypeError(f"{f.name}: the function gives a dict for some rows, and a {other} for "
                        "others")
    if rows and not dicts[0]:
        return _table(len(rows), [_named(f, column_of, "item", rows)])
    names = dict.fromkeys(str(k) for row in rows for k in row)
    return _table(len(rows), [_named(f, column_of, n, [r.get(n) for r in rows]) for n in names])


def _named(f: Function, make: Callable[[str, Any], Column], name: str, values: Any) -> Column:
    """What is wrong with a column is said with the function that gave it."""
    try:
        return make(name, values)
    except (TypeError, ValueError) as e:
        raise type(e)(f"{f.name}: {e}") from None


# --- batches --------------------------------------------------------------------------------------


def _map_batches(f: Function, batch: _manta.Batch, fields: Sequence[Field]) -> _Given:
    return _stream(f, f.call(_input(f, batch, fields))), None


def _add_column(f: Function, batch: _manta.Batch, fields: Sequence[Field]) -> _Given:
    made = f.call(_input(f, batch, fields))
    if hasattr(made, "__iter__") and not hasattr(made, "__len__"):
        made = list(made)
    if isinstance(made, (str, bytes)) or not hasattr(made, "__len__"):  # one value for all
        made = [made] * batch.rows()
    return _table(len(made), [_named(f, _any_column, f.column, made)]), None


def _input(f: Function, batch: _manta.Batch, fields: Sequence[Field]) -> Any:
    given = converter(f.batch_format)(batch, fields)
    if isinstance(given, dict) and not f.shares:
        return {k: v.copy() if hasattr(v, "flags") and not v.flags.writeable else v
                for k, v in given.items()}
    return given


def _stream(f: Function, made: Any) -> object:
    """What a function over batches gives, whatever it is."""
    if isinstance(made, Mapping):
        for name, values in made.items():
            if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
                raise TypeError(f"{f.name}: column {str(name)!r} is a {type(values).__name__}, not "
                                "an array\nhint: a dict of arrays, with a value for each row")
        columns = [_named(f, _any_column, str(k), v) for k, v in made.items()]
        lengths = {str(k): len(v) for k, v in made.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{f.name}: columns of different lengths: {lengths}")
        return _table(next(iter(lengths.values()), 0), columns)
    if hasattr(made, "iloc") and hasattr(made, "columns"):  # a DataFrame of pandas
        try:
            return _table(len(made), frame_columns(made))
        except (TypeError, ValueError) as e:
            raise type(e)(f"{f.name}: {e}") from None
    if hasattr(made, "__arrow_c_stream__") or hasattr(made, "__arrow_c_array__"):
        return _one_batch(lists.fixed_table(f.name, made))
    if hasattr(made, "shape") and hasattr(made, "dtype"):
        return _stream(f, {"data": made})
    if isinstance(made, list):
        return _stream_of_rows(f, made)
    if hasattr(made, "__iter__"):
        return _stream(f, _joined(f, made))
    raise TypeError(f"{f.name}: the function gives a {type(made).__name__}\nhint: a dict of "
                    "arrays, a DataFrame, a table of Arrow, or a list of rows")


def _joined(f: Function, parts: Iterable[Any]) -> Any:
    """Batches that a generator yields, one after the other."""
    batches = list(parts)
    if not batches:
        return {}
    first = batches[0]
    if hasattr(first, "iloc"):
        import pandas
        return pandas.concat(batches, ignore_index=True)
    if isinstance(first, Mapping):
        return {k: _end_to_end([b[k] for b in batches]) for k in first}
    if hasattr(first, "__arrow_c_stream__") or hasattr(first, "__arrow_c_array__"):
        import pyarrow
        return pyarrow.concat_tables([pyarrow.table(b) for b in batches])
    if all(isinstance(b, list) for b in batches):
        return [row for b in batches for row in b]
    raise TypeError(f"{f.name}: the function yields a {type(first).__name__}\nhint: dicts of "
                    "arrays, DataFrames, tables of Arrow, or lists of rows")


def _end_to_end(parts: list[Any]) -> Any:
    import numpy
    if any(isinstance(p, list) for p in parts):
        return [v for p in parts for v in p]
    return numpy.concatenate([p.detach().cpu().numpy() if hasattr(p, "detach") else
                              numpy.asarray(p) for p in parts])


def _table(rows: int, columns: list[Column]) -> object:
    return _manta.columns(rows, [tuple(c) for c in columns])


def _one_batch(made: Any) -> object:
    """Arrow's, in one piece."""
    if hasattr(made, "combine_chunks"):
        pieces = made.combine_chunks().to_batches()
        if len(pieces) == 1:
            made = pieces[0]
    if hasattr(made, "__arrow_c_array__"):
        return _manta.array_stream(*made.__arrow_c_array__())
    return made


def _any_column(name: str, values: Any) -> Column:
    """Of an array of numpy, a tensor of torch, a Series of pandas, or a list."""
    if hasattr(values, "iloc"):
        return series_column(name, values)
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    if hasattr(values, "dtype") and hasattr(values, "shape"):
        return numpy_column(name, values)
    return column_of(name, list(values))


# --- types that the user names --------------------------------------------------------------------

_WIDTHS = {"bool": ("b", 1), "string": ("u", 8), "bytes": ("z", 8), "i8": ("c", 8), "u8": ("C", 8),
           "i16": ("s", 16), "u16": ("S", 16), "i32": ("i", 32), "u32": ("I", 32), "i64": ("l", 64),
           "u64": ("L", 64), "f16": ("e", 16), "f32": ("f", 32), "f64": ("g", 64)}


def _schema(types: Mapping[str, str]) -> object:
    columns = []
    for name, text in types.items():
        word, _, shape = text.partition("[")
        if word not in _WIDTHS:
            raise ValueError(f"column {name!r}: there is no type {text!r}\nhint: one of "
                             + ", ".join(_WIDTHS) + ", or f32[3,4] for tensors")
        dims = tuple(int(n) for n in shape.rstrip("]").split(",")) if shape else ()
        format, bits = _WIDTHS[word]
        offsets = array.array("i", [0]) if word in ("string", "bytes") else None
        columns.append(Column(str(name), format, bits, dims, b"", offsets, None))
    return _table(0, columns)


# --- steps ----------------------------------------------------------------------------------------

_Verb = Callable[[Function, _manta.Batch, Sequence[Field]], _Given]
_VERBS: dict[str, tuple[int, _Verb]] = {
    "filter": (FILTER, _filter), "map": (MAP, _map), "flat_map": (ROWS, _flat_map),
    "map_batches": (ROWS, _map_batches), "add_column": (ADD, _add_column)}


@dataclass(eq=False)
class Step:
    """A function over batches of these columns."""
    f: Function
    fields: list[Field]

    @property
    def name(self) -> str:
        return self.f.name

    def __call__(self, batch: _manta.Batch) -> _Given:
        return _VERBS[self.f.verb][1](self.f, batch, self.fields)


def apply(data: _manta.Data, f: Function, batch_rows: int) -> _manta.Data:
    """As a plan names it."""
    from manta._runtime import calls
    kind, _ = _VERBS[f.verb]
    step = Step(f, [Field(*row) for row in data.fields()])
    options: dict[str, Any] = {"name": f.name, "kind": kind, "batch_rows": batch_rows,
                               "each_row": int(f.verb == "map")}
    if f.types:
        options["schema"] = _schema(f.types)
    return _manta.apply_data(data, options, step, lambda: calls.pack(step))


setattr(apply, "calls", True)


def _step(dataset: Dataset, f: Function, options: Mapping[str, Any], batch_rows: int = 0
          ) -> Dataset:
    unknown = [k for k in options if k not in _GIVEN and k not in _IGNORED]
    if unknown:
        raise TypeError(f"{f.verb}() takes no argument {unknown[0]!r}")
    f.args = tuple(options.get("fn_args") or ())
    f.kwargs = dict(options.get("fn_kwargs") or {})
    f.made_of = (tuple(options.get("fn_constructor_args") or ()),
                 dict(options.get("fn_constructor_kwargs") or {}))
    f.shares = bool(options.get("zero_copy_batch"))
    return dataset.step(apply, f, batch_rows)


_GIVEN = ("fn_args", "fn_kwargs", "fn_constructor_args", "fn_constructor_kwargs", "zero_copy_batch")
# Of other engines, which place work by them: here it is done where rows are read.
_IGNORED = ("compute", "concurrency", "num_cpus", "num_gpus", "memory", "ray_remote_args",
            "ray_remote_args_fn", "udf_modifying_row_count")


def over_rows(dataset: Dataset, verb: str, fn: Any, options: Mapping[str, Any],
              types: Mapping[str, str] | None = None) -> Dataset:
    return _step(dataset, Function(verb, fn, types=dict(types) if types else None), options)


def over_batches(dataset: Dataset, fn: Any, batch_size: int | str | None,
                 batch_format: str | None, options: Mapping[str, Any],
                 types: Mapping[str, str] | None) -> Dataset:
    rows = 0 if batch_size in (None, "default") else int(batch_size or 0)
    if rows < 1 and batch_size not in (None, "default"):
        raise ValueError(f"map_batches: batch_size={batch_size!r}; it is 1 or more, or None for "
                         "batches as they come")
    converter(batch_format)  # an unknown one is said here
    f = Function("map_batches", fn, batch_format=batch_format or "numpy",
                 types=dict(types) if types else None)
    return _step(dataset, f, options, rows)


def new_column(dataset: Dataset, name: str, fn: Any, batch_format: str | None,
               options: Mapping[str, Any]) -> Dataset:
    from importlib.util import find_spec
    format = batch_format or ("pandas" if find_spec("pandas") else "numpy")
    converter(format)
    return _step(dataset, Function("add_column", fn, batch_format=format, column=name), options)

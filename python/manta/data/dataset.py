# SPDX-License-Identifier: Apache-2.0
"""Dataset: rows of typed columns, of any size, that nobody reads before they are asked for."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, ParamSpec, Sequence

from manta import _manta, _names
from manta.data import formats, functions, plan as steps, run, split, writing
from manta.data.expression import Expression, parse, tree_of
from manta.data.iterator import Batches, tail_number
from manta.data.plan import Plan
from manta.data.schema import Schema, type_text
from manta.data.stats import Stats

if TYPE_CHECKING:
    from manta._frameworks.torch.batches import TorchBatches

P = ParamSpec("P")
Build = Callable[..., _manta.Data]
Features = (str | Sequence[str] | Sequence[Sequence[str]] | Mapping[str, str | Sequence[str]]
            | None)

BLOCK_BYTES = 32 << 20  # of a file, parsed about twice as many
WINDOW_MIN = 256 << 20  # with less there may be no room for a window of a shuffle


# How other engines cut files and place work; here each shard writes one.
_PLACING = ("concurrency", "min_rows_per_file", "num_rows_per_file", "ray_remote_args",
            "try_create_dir")


def _writer(function: Callable[P, None]) -> Callable[P, None]:
    """What a program says of placement changes nothing."""
    @functools.wraps(function)
    def write(*args: P.args, **kwargs: P.kwargs) -> None:
        for name in _PLACING:
            kwargs.pop(name, None)
        function(*args, **kwargs)
    return write


class Dataset:
    """A data set does not change: each step gives another one. It can be pickled, and is read anew
    wherever it travels to.

    rows: the plan that gives the rows. Steps over rows go on top of it.
    order: (build, args) of each step that says which row comes when (a shuffle, a repeat, a limit
        behind them); they come on top of the rows.
    rank, ranks: which part of each global batch this data set is.
    length: at most so many blocks are in memory; 0: as many as a quarter of memory holds.
    tail: what becomes of the last rows; None: the iterator says.
    name: in a worker, that of its positions in checkpoints.
    """

    def __init__(self, rows: Plan, order: tuple[tuple[Build, tuple[Any, ...]], ...] = (),
                 rank: int = 0, ranks: int = 1, length: int = 0, tail: str | None = None,
                 name: str = "") -> None:
        self.rows = rows
        self.order = order
        self.rank = rank
        self.ranks = ranks
        self.length = length
        self.tail = tail
        self.name = name
        self._plan: Plan | None = None

    @staticmethod
    def of(rows: Plan) -> Dataset:
        """The data set of a plan, which is made now: what cannot be is said where it is written."""
        rows.data()
        return Dataset(rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    def __getattr__(self, name: str) -> Any:
        """What is not here is answered with what is meant."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(_names.absent("Dataset", name, dir(Dataset)))

    def __repr__(self) -> str:
        part = f", shard {self.rank} of {self.ranks}" if self.ranks > 1 else ""
        return f"Dataset({', '.join(map(str, self.schema()))}{part})"

    # --- making others ---

    @property
    def plan(self) -> Plan:
        """That of the rows in their order."""
        if self._plan is None:
            self._plan = self.rows
            for build, args in self.order:
                self._plan = self._plan.step(build, *args)
        return self._plan

    def but(self, **changes: Any) -> Dataset:
        """The same with other arguments; its plan is made now."""
        kept = {k: v for k, v in self.__dict__.items() if not k.startswith("_")}
        other = Dataset(**{**kept, **changes})
        if not other.plan.calls:
            other.plan.data()
        return other

    def named(self, name: str) -> Dataset:
        """The same as the data set of a run that has this name there."""
        return self.but(name=name)

    def step(self, build: Build, *args: Any) -> Dataset:
        """A step over rows: `build(data, *args)`, as `Plan` has it."""
        if any(b is steps.limit for b, _ in self.order):  # of rows as they come
            return self.then(build, *args)
        return self.but(rows=self.rows.step(build, *args))

    def then(self, build: Build, *args: Any) -> Dataset:
        """A step over the order."""
        return self.but(order=(*self.order, (build, args)))

    # --- steps ---

    def filter(self, fn: Any = None, *, expr: Any = None, **options: Any) -> Dataset:
        """The rows for which an expression is true: `filter(col("age") > 30)`, or as text,
        `filter("age > 30")`; or a function of a row, which is a dict: `filter(lambda row:
        row["age"] > 30)`. Without one, all."""
        fn = expr if fn is None else fn
        if fn is None:
            return self
        if isinstance(fn, str):
            fn = parse(fn)
        if not isinstance(fn, Expression):
            return functions.over_rows(self, "filter", fn, options)
        return self.step(steps.filter_rows, fn.tree)

    def map(self, fn: Any, *, types: Mapping[str, str] | None = None, **options: Any) -> Dataset:
        """Rows of other columns: `map({"ratio": col("a") / col("b"), "a": col("a")})`, or one
        expression, `map((col("a") * 2).alias("a2"))` (without a name, the column "value"); or a
        function of a row: `map(lambda row: {"b": row["a"] * 2})`.

        types: {column: type} of what the function gives, where its first rows do not show it."""
        if not isinstance(fn, (Mapping, Expression)):
            return functions.over_rows(self, "map", fn, options, types)
        if isinstance(fn, Mapping):
            columns = [(str(k), tree_of(v)) for k, v in fn.items()]
        else:
            columns = [(fn.name or "value", fn.tree)]
        if not columns:
            raise ValueError("map: no columns are given")
        return self.step(steps.compute, columns)

    def flat_map(self, fn: Any, *, types: Mapping[str, str] | None = None, **options: Any
                 ) -> Dataset:
        """Any number of rows of each row: `flat_map(lambda row: [{"word": w} for w in
        row["text"].split()])`. A position can lie between the rows that were made of one."""
        return functions.over_rows(self, "flat_map", fn, options, types)

    def map_batches(self, fn: Any, *, batch_size: int | str | None = None,
                    batch_format: str | None = "numpy", types: Mapping[str, str] | None = None,
                    **options: Any) -> Dataset:
        """A function of batches, which gives one: a dict of arrays, a DataFrame, a table of Arrow,
        or a generator of them, of as many rows as it likes. A class is made an object of in each
        process, and called.

        batch_size: rows of one call, but for the last of a block; None: as they come.
        batch_format: what the function is given: "numpy", "pandas", "pyarrow", "torch", "dict".
        fn_args, fn_kwargs: more arguments of the function; fn_constructor_args,
            fn_constructor_kwargs: those of the class.
        """
        return functions.over_batches(self, fn, batch_size, batch_format, options, types)

    def add_column(self, name: str, fn: Any, *, batch_format: str | None = None, **options: Any
                   ) -> Dataset:
        """A column more at the end, or another one in the place of that of the same name: what an
        expression gives, or a function of a batch: `add_column("b", lambda batch: batch["a"] * 2)`.
        Its batch is a DataFrame if pandas is installed, else a dict of arrays."""
        if not isinstance(fn, Expression):
            return functions.new_column(self, str(name), fn, batch_format, options)
        return self.step(steps.add_column, str(name), fn.tree)

    with_column = add_column

    def select_columns(self, cols: str | Sequence[str]) -> Dataset:
        """These columns, in this order."""
        return self.step(steps.select, _list(cols))

    def only(self, cols: list[str], single: list[str]) -> Dataset:
        """These columns; those of `single` may be float32 where they are float64."""
        return self.but(rows=self.rows.only(cols, single))

    def drop_columns(self, cols: str | Sequence[str]) -> Dataset:
        """All columns but these."""
        return self.step(steps.drop, _list(cols))

    def rename_columns(self, names: Mapping[str, str] | Sequence[str]) -> Dataset:
        """{old: new}, or the new names of all columns."""
        if not isinstance(names, Mapping):
            names = dict(zip(self.columns(), _all_names(names, len(self.columns()))))
        return self.step(steps.rename, [str(k) for k in names], [str(v) for v in names.values()])

    def random_shuffle(self, seed: int | None = None, *, window: int | None = None,
                       num_blocks: int | None = None) -> Dataset:
        """Another order in each epoch, the same for the same seed whatever the number of workers:
        blocks are permuted, then rows in windows of `window` rows (as many as 64 MiB hold).
        num_blocks changes nothing: blocks are those of the files."""
        return self.then(steps.shuffle, _seed(seed), window or 0)

    def limit(self, limit: int) -> Dataset:
        """The first rows; behind a shuffle or a repeat, the first that come."""
        return (self.then if self.order else self.step)(steps.limit, int(limit))

    def repeat(self, times: int | None = None) -> Dataset:
        """So many passes as one; each has an epoch of its own. None: without end."""
        if times is not None and times < 1:
            raise ValueError(f"repeat({times}): it is 1 or more; None is without end")
        return self.then(steps.repeat, times or 0)

    def union(self, *others: Dataset) -> Dataset:
        """Its rows, then those of the others; columns have the same names and types."""
        return self.but(rows=Plan(steps.union, (), (self.rows, *(_same(self, o) for o in others))))

    def zip(self, other: Dataset) -> Dataset:
        """Row i of both side by side; a name that both have gets the end "_1"."""
        return self.but(rows=Plan(steps.zip_rows, (), (self.rows, _same(self, other))))

    def random_sample(self, fraction: float, seed: int | None = None) -> Dataset:
        """Each row with this probability; which ones is a function of the seed and the row."""
        return self.step(steps.sample, float(fraction), _seed(seed))

    def materialize(self) -> Dataset:
        """The same with its rows in memory: files are read and parsed once, now."""
        return self.step(steps.hold)

    cache = materialize

    def repartition(self, num_blocks: int, *, shuffle: bool = False) -> Dataset:
        """The same; with `shuffle`, in another order. Blocks are those of the files:
        `read_csv(…, block_bytes=…)` says how large they are."""
        return self.random_shuffle() if shuffle else self

    def pipeline(self, *, length: int | None = None, blocks_per_window: int | None = None
                 ) -> Dataset:
        """At most so many blocks are in memory at a time, whatever the size of the data set."""
        n = length if length is not None else blocks_per_window
        if n is not None and n < 1:
            raise ValueError(f"pipeline(length={n}): it is 1 or more")
        return self.but(length=n or 0)

    def window(self, *, blocks_per_window: int | None = None) -> Dataset:
        """`pipeline` by another name."""
        return self.pipeline(blocks_per_window=blocks_per_window)

    # --- parts ---

    def split(self, n: int, equal: bool = False) -> list[Dataset]:
        """n data sets that have each row once; `equal`: all of the same length, and what is left
        over in none. Rows are counted when the first of them is read."""
        return split.parts(self, n, equal)

    def split_at_indices(self, indices: Sequence[int]) -> list[Dataset]:
        """The rows up to each place, and those behind the last."""
        return split.parts_at(self, indices)

    def split_proportionately(self, proportions: Sequence[float]) -> list[Dataset]:
        """A data set per fraction, and one of the rest."""
        return split.parts_by(self, proportions)

    def train_test_split(self, test_size: int | float, *, shuffle: bool = False,
                         seed: int | None = None) -> tuple[Dataset, Dataset]:
        """(train, test); test_size: a fraction, or a number of rows. The test rows are the last
        ones; with `shuffle`, or of a data set that is shuffled, they are chosen by chance."""
        return split.train_test(self, test_size, shuffle, _seed(seed))

    def to_cv(self, splits: int = 3, shuffle: bool = False, seed: int | None = None,
              stratify: str | None = None, groups: str | None = None, time_series: bool = False
              ) -> tuple[tuple[Dataset, Dataset], ...]:
        """Cross validation: a (train, validation) pair per split; each row validates once.

        shuffle: rows are put into folds by chance, by `seed`; else in runs. Of a data set that is
            shuffled they are put by chance in any case, unless it is a time series.
        stratify: a column of which every fold gets its share of each value.
        groups: a column; rows of equal value stay in one fold.
        time_series: what validates comes behind all that trains.
        """
        options = {"shuffle": shuffle, "seed": _seed(seed), "stratify": stratify, "groups": groups,
                   "series": time_series}
        return split.folds(self, splits, options)

    def shard(self, rank: int, n: int) -> Dataset:
        """The part of worker `rank` of n: of each global batch of n * batch_size rows one n-th, so
        that all have equally many batches."""
        if not 0 <= rank < n:
            raise ValueError(f"shard({rank}, {n}): the rank is 0 to {n - 1}")
        return self.but(rank=rank, ranks=n)

    def get_shard(self, rank: int | None = None) -> Dataset:
        """`shard` of the workers that this one is among; None: its own."""
        from manta._front import session
        return self.shard(session.world_rank() if rank is None else rank, session.world_size())

    def get_split(self) -> Dataset:
        """The part of this worker; in plain code, the whole."""
        return self.get_shard()

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: object = None
                        ) -> list[Dataset]:
        """The parts of n consumers; `equal`: rows that do not fill a global batch are left out.
        locality_hints changes nothing: rows are read where they are used."""
        return [self.shard(i, n).but(tail="drop" if equal else self.tail) for i in range(n)]

    # --- what it is ---

    def schema(self) -> Schema:
        return Schema([(f.name, type_text(f)) for f in self.rows.fields()])

    def columns(self) -> list[str]:
        return [f.name for f in self.rows.fields()]

    def num_blocks(self) -> int:
        return self.plan.data().blocks()

    def input_files(self) -> list[str]:
        """Those that its rows come from."""
        data = self.rows.data()
        return list(dict.fromkeys(f for i in range(data.blocks()) if (f := data.file(i))))

    def count_rows(self) -> int:
        """Of all shards, in one pass."""
        return self.plan.data().count()

    def count(self) -> int:
        """Rows of one pass, of this shard: files are read, but only what filters look at is
        parsed."""
        return split.shard_count(self.count_rows(), self.rank, self.ranks)

    def explain(self) -> str:
        """The plan, the last step first: which columns and filters go down into the files."""
        text = self.plan.data().explain().rstrip("\n")
        if self.ranks > 1:
            text = f"shard {self.rank} of {self.ranks}\n{text}"
        return f"window of {self.length} blocks\n{text}" if self.length else text

    def stats(self) -> Stats:
        """What was read so far, and where the time went."""
        return Stats.of(self.plan)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For other libraries: `polars.from_arrow(ds)`, `pyarrow.table(ds)`. The rows of all
        shards, in the order of the files."""
        data = self.rows.data()
        return data.stream(0, data.blocks())

    # --- out ---

    @_names.arguments
    def iter_batches(self, batch_size: int | None = 256, batch_format: str | None = "numpy", *,
                     drop_last: bool = False, tail: str | None = None,
                     prefetch_batches: int = 0, local_shuffle_buffer_size: int | None = None,
                     local_shuffle_seed: int | None = None, threads: int | None = None,
                     memory_limit: int | None = None, prefetch_blocks: int = 0) -> Batches[Any]:
        """Batches as "numpy" (a dict of arrays), "pandas", "pyarrow", "torch" (a dict of tensors)
        or "dict" (of lists). batch_size: rows of a batch; None: 65,536.

        tail: "short" (the last batch is smaller), "drop" (= drop_last) or "pad" (the first rows
            come once more).
        prefetch_batches: that are put together ahead, beside the parsing, which always is.
        local_shuffle_buffer_size: rows that are mixed with each other, if the data set is not
            shuffled.
        threads: that parse; memory_limit: bytes that were parsed and not given out yet.
        prefetch_blocks changes nothing: blocks are always read ahead.
        """
        return self._batches(formats.converter(batch_format), batch_size, drop_last, tail,
                             prefetch_batches, local_shuffle_buffer_size, local_shuffle_seed,
                             threads, memory_limit)

    def _batches(self, convert: formats.Converter, batch_size: int | None, drop_last: bool = False,
                 tail: str | None = None, prefetch_batches: int = 0, buffer: int | None = None,
                 seed: int | None = None, threads: int | None = None,
                 memory_limit: int | None = None) -> Batches[Any]:
        given = self._mixed(buffer, seed)
        end = tail_number(tail or self.tail, drop_last)
        rows = 65536 if batch_size is None else batch_size
        options = given.loader_options(rows, end, prefetch_batches, threads, memory_limit)
        return Batches(given.plan, options, convert)

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """A dict per row."""
        batches: Batches[list[dict[str, Any]]] = Batches(
            self.plan, self.loader_options(1024, tail_number(self.tail, False)), formats.rows_of)
        for rows in batches:
            yield from rows

    def iterator(self) -> Dataset:
        """Itself: it has iter_batches() and to_torch()."""
        return self

    @_names.arguments
    def to_torch(self, label_column: str | None = None, feature_columns: Features = None,
                 batch_size: int = 1, *, prefetch_batches: int = 0, drop_last: bool = False,
                 tail: str | None = None, shuffle_buffer: int | None = None,
                 shuffle_seed: int | None = None, device: Any = None, threads: int | None = None,
                 memory_limit: int | None = None, label_column_dtype: Any = None,
                 feature_column_dtypes: Any = None, unsqueeze_label_tensor: bool = True,
                 unsqueeze_feature_tensors: bool = True,
                 local_shuffle_buffer_size: int | None = None,
                 local_shuffle_seed: int | None = None, prefetch_blocks: int = 0) -> TorchBatches:
        """An iterable of (x, y): x float32 (batch, features), y (batch, 1), float32 for floats and
        int64 for integers. Without `label_column` the last column is y; without `feature_columns`
        all others are x. One column of tensors keeps their shape. Null is NaN; in a tensor of
        integers it is an error.

        feature_columns: names; or a list of lists, or a dict of lists of them: then x is a list, or
            a dict, of tensors.
        label_column_dtype, feature_column_dtypes: others; of features one for all, or a list or
            dict as of feature_columns.
        unsqueeze_label_tensor=False: y is (batch,); the same of features of one column.
        device: where tensors are to be; to a GPU they are copied ahead, from pinned memory on a
            stream of its own, `prefetch_batches` (2) at a time.
        shuffle_buffer (local_shuffle_buffer_size): rows that are mixed with each other, if the data
            set is not shuffled.
        The other arguments are those of `iter_batches`; prefetch_blocks changes nothing.
        """
        from manta._frameworks.torch.batches import Shapes, torch_batches
        given = self._mixed(shuffle_buffer or local_shuffle_buffer_size,
                            local_shuffle_seed if shuffle_seed is None else shuffle_seed)
        options = given.loader_options(batch_size, tail_number(tail or self.tail, drop_last), 0,
                                       threads, memory_limit)
        shapes = Shapes(label_column, feature_columns, label_column_dtype, feature_column_dtypes,
                        unsqueeze_label_tensor, unsqueeze_feature_tensors)
        return torch_batches(given, options, shapes, device, prefetch_batches)

    @_names.arguments
    def iter_torch_batches(self, *, batch_size: int | None = 256, dtypes: Any = None,
                           device: Any = "auto",
                           collate_fn: Callable[[dict[str, Any]], Any] | None = None,
                           drop_last: bool = False, tail: str | None = None,
                           prefetch_batches: int = 0, local_shuffle_buffer_size: int | None = None,
                           local_shuffle_seed: int | None = None, threads: int | None = None,
                           memory_limit: int | None = None, prefetch_blocks: int = 0
                           ) -> Batches[Any]:
        """`iter_batches` of dicts of tensors.

        dtypes: of all tensors, or {column: dtype}.
        device: where tensors are to be; "auto": of a shard of a run that of its worker, else the
            CPU.
        collate_fn: gets a dict of arrays, and gives what is to come instead of the dict of tensors.
        """
        from manta._frameworks.torch import batches
        if device == "auto":
            device = batches.get_device() if self.name else None
        return self._batches(batches.converter(dtypes, device, collate_fn), batch_size, drop_last,
                             tail, prefetch_batches, local_shuffle_buffer_size, local_shuffle_seed,
                             threads, memory_limit)

    def to_tf(self, feature_columns: str | Sequence[str], label_columns: str | Sequence[str], *,
              batch_size: int = 1, prefetch_batches: int = 0, drop_last: bool = False,
              tail: str | None = None) -> Any:
        """A tf.data.Dataset of (features, labels): a tensor each for one column, a dict of tensors
        for a list of them. Its first pass goes on where this data set's position is."""
        return writing.to_tf(self, feature_columns, label_columns,
                             {"batch_size": batch_size, "prefetch_batches": prefetch_batches,
                              "drop_last": drop_last, "tail": tail})

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows, or the first, as a DataFrame."""
        return writing.to_pandas(self, limit)

    @_writer
    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes all rows to the file path, if it ends in .csv, else to a part in that folder: each
        shard writes one."""
        writing.write_csv(self, path)

    @_writer
    def write_json(self, path: str | os.PathLike[str]) -> None:
        """The same as an object per line; .json."""
        writing.write_json(self, path)

    @_writer
    def write_parquet(self, path: str | os.PathLike[str], **options: Any) -> None:
        """The same by pyarrow, which takes the options; .parquet."""
        writing.write_parquet(self, path, options)

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows."""
        rows = []
        for row in self.iter_rows() if limit > 0 else ():
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    def take_all(self) -> list[dict[str, Any]]:
        """All rows."""
        return list(self.iter_rows())

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "numpy") -> Any:
        """The first rows as a batch."""
        for batch in self.iter_batches(batch_size=batch_size, batch_format=batch_format):
            return batch
        raise ValueError("take_batch: the data set has no rows")

    def show(self, limit: int = 20) -> None:
        """Prints the first rows, a line each."""
        for row in self.take(limit):
            print(row)

    # --- for those who read ---

    def loader_options(self, batch_size: int, tail: int, prefetch: int = 0,
                       threads: int | None = None, memory_limit: int | None = None
                       ) -> dict[str, Any]:
        """What Data.loader() takes, of batches of so many rows per rank."""
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: it is 1 or more")
        if memory_limit is None and self.length:
            memory_limit = max(WINDOW_MIN, min(2 * BLOCK_BYTES * self.length, _quarter()))
        named = {"name": self.name} if self.name and run.is_own(self.rank, self.ranks) else {}
        return {**named, "batch_rows": batch_size * self.ranks, "rank": self.rank,
                "ranks": self.ranks, "tail": tail, "prefetch": prefetch or -1,
                "threads": threads or 0, "memory_limit": memory_limit or 0}

    def _mixed(self, buffer: int | None, seed: int | None) -> Dataset:
        if not buffer or any(b is steps.shuffle for b, _ in self.order):
            return self
        return self.random_shuffle(seed=seed, window=buffer)


def _list(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else [str(c) for c in columns]


def _all_names(names: Sequence[str], count: int) -> Sequence[str]:
    if len(names) != count:
        raise ValueError(f"rename_columns: {len(names)} names for {count} columns")
    return names


def _same(first: Dataset, other: Dataset) -> Plan:
    """The rows of another one, which has to be in no order of its own."""
    if not isinstance(other, Dataset):
        raise TypeError(f"a Dataset is wanted, not {type(other).__name__}")
    return other.plan if other.order else other.rows


def _seed(seed: int | None) -> int:
    """The same rows in the same order if none is given."""
    return 0 if seed is None else int(seed) & (2 ** 63 - 1)


def _quarter() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4

# SPDX-License-Identifier: Apache-2.0
# Made by tools/make-stub out of the extension: change python/ext/*.c and run it again.
from typing import Any, Callable, Sequence

BAND: int
BOR: int
BXOR: int
DTYPES: tuple[str, ...]
EABORTED: int
EAGENT: int
ECANCELED: int
ECLOSED: int
ECORRUPT: int
EDENIED: int
EHUNG: int
EINVAL: int
EIO: int
ENOENT: int
ENOMEM: int
ENOROOM: int
EPEERLOST: int
EPREEMPTED: int
EPROTO: int
ESTATE: int
ETIMEDOUT: int
ETOOBIG: int
ETYPE: int
EUNEVEN: int
EUNSUPPORTED: int
EUSER: int
EWORKER: int
MAX: int
MEAN: int
MIN: int
PROD: int
SUM: int
TAG_MAX: int

class Preempted(SystemExit):
    """The run was asked to stop, and can be resumed."""
    detail: Any
    rank: int
    status: str

class Error(RuntimeError):
    """What manta could not do."""
    detail: Any
    rank: int
    status: str

class Aborted(Error):
    """The attempt is being ended."""

class Canceled(Error):
    """The run was ended from outside."""

class NoColumn(KeyError):
    """A data set has no column of this name."""

class NoRoom(Error):
    """Not enough CPUs, GPUs or other resources."""

class PeerLost(Error):
    """Another worker of the run is gone."""

class WorkerLost(Error):
    """A worker died, and retries are used up."""

class Batch:
    """Rows as columns."""
    def column(self, number: int, /) -> tuple[int, int, View, View | None, View | None]:
        """Where it begins, how many values are null, its data, the offsets of text, and the bitmap
        of values that are not null."""
    def rows(self) -> int:
        """How many."""

class Checkpoint:
    """A checkpoint that can be read."""
    def given(self) -> bool:
        """Whether it was not saved by this run."""
    def iteration(self) -> int:
        """Reports that had been made."""
    def tensors(self) -> list[tuple[str, int, tuple[int, ...], View]]:
        """Name, dtype, shape and bytes of each."""
    def value(self) -> Any:
        """The small value beside them."""

class Comm:
    """A communicator of libmanta."""
    def allgather(
        self,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        start: bool = False,
        /,
    ) -> Any:
        """From all to all."""
    def allgatherv(
        self,
        send: int,
        recv: int,
        counts: int,
        dtype: int,
        start: bool = False,
        /,
    ) -> Any:
        """counts: an address, too."""
    def allreduce(
        self,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        op: int,
        start: bool = False,
        /,
    ) -> Any:
        """Buffers are addresses."""
    def alltoall(self, send: int, recv: int, count: int, dtype: int, start: bool = False, /) -> Any:
        """From each to each."""
    def barrier(self, start: bool = False, /) -> Any:
        """Until all have come."""
    def broadcast(self, buf: int, count: int, dtype: int, root: int, start: bool = False, /) -> Any:
        """From one to all."""
    def close(self, tell: bool = True, /) -> None:
        """Ends what is in flight, and the communicator."""
    def gather(
        self,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        root: int,
        start: bool = False,
        /,
    ) -> Any:
        """From all to one."""
    def group(self, ranks: list[int], /) -> Comm:
        """Of those, who all call it."""
    def rank(self) -> int:
        """This rank."""
    def recv(
        self,
        buf: int,
        count: int,
        dtype: int,
        source: int,
        tag: int,
        start: bool = False,
        /,
    ) -> Any:
        """source = -1: from any rank."""
    def reduce(
        self,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        op: int,
        root: int,
        start: bool = False,
        /,
    ) -> Any:
        """To one."""
    def reduce_scatter(
        self,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        op: int,
        start: bool = False,
        /,
    ) -> Any:
        """A block to each."""
    def scatter(
        self,
        send: int,
        recv: int,
        count: int,
        dtype: int,
        root: int,
        start: bool = False,
        /,
    ) -> Any:
        """From one, a block to each."""
    def send(
        self,
        buf: int,
        count: int,
        dtype: int,
        to: int,
        tag: int,
        start: bool = False,
        /,
    ) -> Any:
        """To one rank."""
    def set_timeout(self, seconds: float, /) -> None:
        """Of each call; negative: none."""
    def size(self) -> int:
        """How many there are."""

class Data:
    """A data set of libmanta."""
    def add(self, name: str, expression: Any, /) -> Data:
        """A column more, or another."""
    def blocks(self) -> int:
        """How many."""
    def count(self) -> int:
        """Rows of one pass."""
    def drop(self, columns: list[str], /) -> Data:
        """All columns but these."""
    def explain(self) -> str:
        """The plan as text, the last step first."""
    def fields(self) -> list[tuple[str, str, int, int, tuple[int, ...]]]:
        """Of each column its name, format in Arrow's words, kind, dtype and shape."""
    def file(self, block: int, /) -> str | None:
        """That a block is of."""
    def filter(self, expression: Any, /) -> Data:
        """The rows for which it is true."""
    def fold(self, options: dict[str, Any], /) -> Data:
        """The rows of a split of a cross validation."""
    def limit(self, rows: int, /) -> Data:
        """The first rows."""
    def loader(self, options: dict[str, Any], /) -> Loader:
        """What gives batches."""
    def part(self, start: int, end: int, of: int, shuffle: bool, seed: int, /) -> Data:
        """The rows from rows * start / of to rows * end / of."""
    def rename(self, old: list[str], new: list[str], /) -> Data:
        """Other names."""
    def repeat(self, times: int, /) -> Data:
        """So many passes; 0: without end."""
    def sample(self, fraction: float, seed: int, /) -> Data:
        """Each row with this probability."""
    def schema(self) -> object:
        """As a capsule of Arrow."""
    def select(self, columns: list[str], /) -> Data:
        """These columns."""
    def shuffle(self, seed: int, window: int, /) -> Data:
        """Another order in each epoch."""
    def single(self, columns: list[str], /) -> Data:
        """These columns of text files as f32, if they are f64."""
    def stats(self) -> dict[str, Any]:
        """What was read so far."""
    def stream(self, first: int, count: int, /) -> object:
        """Some of its blocks, as a capsule of an Arrow stream."""
    def union(self, others: list[Data], /) -> Data:
        """Its rows, then those of others."""
    def zip(self, other: Data, /) -> Data:
        """Rows side by side."""

class Loader:
    """The batches of a data set, one after the other."""
    def begin(self, epoch: int, /) -> None:
        """Goes to the beginning of an epoch."""
    def close(self) -> None:
        """Ends its threads."""
    def epoch(self) -> int:
        """That the last batch was of."""
    def fill(self, room: int, addresses: list[int], /) -> int:
        """Writes the next batch, of at most `room` rows, to the addresses of its matrices, and says
        how many rows it has; -1 at the end."""
    def load(self, position: dict[str, int], /) -> None:
        """Goes on from there."""
    def mark(self, position: dict[str, int] | None, /) -> None:
        """What save() gives from now on, while batches are taken ahead of their use; None: where
        the loader is, as after begin() and load()."""
    def matrices(self, matrices: list[tuple[list[int], int]], /) -> None:
        """What fill() writes: of each matrix its columns, and the number of its dtype."""
    def next(self) -> Batch | None:
        """The next batch; None at the end."""
    def save(self) -> dict[str, int]:
        """The position behind the batch that was given out last."""
    def stats(self) -> dict[str, float]:
        """Where the time went, in seconds."""

class Run:
    """A run of a trainer."""
    def close(self) -> None:
        """Ends the run if it is going on."""
    def drain(self) -> None:
        """To the end, without the rows."""
    def finished(self) -> bool:
        """Whether only the end is left."""
    def next(self, timeout: float = -1, /) -> tuple[list[Any], int, int, bool] | None:
        """(rows, iteration, rewound_to, complete), or None at the end."""
    def results(self) -> list[Any] | None:
        """Return values by rank, or None."""
    def stored(self, seconds: float, /) -> bool:
        """Whether a finished run is stored under its URI, after so long at most."""
    def tell_stop(self) -> None:
        """Says that the run is ended, and how to resume."""

class Search:
    """A searcher of libmanta."""
    def __init__(
        self,
        name: str,
        space: dict[str, Any],
        options: dict[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        ...
    def grid(self) -> int:
        """Combinations of all grids of its space."""
    def observe(self, number: int, value: float, /) -> None:
        """That trial has reached a value, which is to be small."""
    def propose(self, number: int, /) -> dict[str, Any]:
        """The config of a trial."""

class Sink:
    """A sink without a run."""
    def __init__(
        self,
        kind: str,
        options: dict[str, Any],
        directory: str,
        config: dict[str, Any],
    ) -> None:
        ...
    def close(self) -> None:
        """Ends it. Idempotent."""
    def put(self, iteration: int, rows: list[Any], /) -> None:
        """Writes the rows of an iteration, by rank."""
    def rewind(self, to: int, /) -> None:
        """Iterations after it are void."""

class Trainer:
    """A trainer of libmanta."""
    def __init__(
        self,
        *,
        workers: int = 0,
        min_workers: int = 0,
        name: str | None = None,
        logdir: str | None = None,
        max_retries: int = 0,
        retry_errors: bool = False,
        step_timeout: float = 0,
        grace: float = 0,
        cpus_per_worker: float = 0,
        gpus_per_worker: float = 0,
        resources: dict[str, float] | None = None,
        threads_per_worker: int = 0,
        pin: bool = False,
        show_all_output: bool = False,
        quiet: bool = False,
        log_limit: int = 0,
        hosts: list[tuple[str | None, int, str | None, str | None]] | None = None,
        host_timeout: float = 0,
        program: tuple[list[str], list[str]] | None = None,
    ) -> None:
        ...
    def best_checkpoint(self) -> str | None:
        """Directory of the best one, or None."""
    def cancel(self) -> None:
        """Ends the run."""
    def checkpoint(self) -> Checkpoint | None:
        """The newest one."""
    def close(self) -> None:
        """Ends the workers and frees the trainer."""
    def hold(self, on: bool, /) -> None:
        """Whether its idle workers stay when another trainer needs their room."""
    def keep(self, on: bool, /) -> None:
        """Whether workers serve several calls of a train function."""
    def logdir(self) -> str:
        """Where runs have their directories."""
    def notice(self) -> None:
        """Asks the run to save and return."""
    def pid(self, rank: int, /) -> int:
        """Of the newest attempt, or -1."""
    def prestart(self) -> None:
        """Starts what workers are forked from, on every host, and keeps it until release()."""
    def resize(self, workers: int, /) -> None:
        """At the next checkpoint."""
    def run(
        self,
        payload: bytes,
        config: Any = None,
        *,
        checkpoint: str | None = None,
        workers: int = 0,
        keep_last: int = 0,
        keep_best: int = 0,
        score: str | None = None,
        score_min: bool = False,
        strict_reports: bool = False,
        execute: bool = False,
        single: bool = False,
        output: Callable[[int, str], object] | None = None,
        kinds: tuple[int, int] = (0, 0),
        resume: str | None = None,
        renew: Callable[[int], object] | None = None,
        verbose: int = 0,
        html: bool = False,
        sinks: list[tuple[str, dict[str, Any]]] | None = None,
    ) -> Run:
        """Starts a run."""
    def run_dir(self) -> str:
        """Directory of the newest run, or an empty string."""
    def shutdown(self) -> None:
        """Ends the workers."""
    def storage(self) -> str | None:
        """The URI under which runs are stored."""
    def table(self) -> str:
        """Workers and resources."""
    def workers(self) -> int:
        """Workers of the next run."""

class Tune:
    """An experiment."""
    def best(self, metric: str | None, maximize: bool, any_row: bool, /) -> int:
        """The number of the best trial."""
    def checkpoint(self, number: int, /) -> Checkpoint | None:
        """The newest one of a trial."""
    def checkpoint_dir(self, number: int, /) -> str | None:
        """Its directory."""
    def close(self) -> None:
        """Ends what runs, and frees it."""
    def count(self, state: int = -1, /) -> int:
        """Of all trials, or those in a state."""
    def dir(self) -> str:
        """Its directory."""
    def info(self) -> dict[str, Any]:
        """What the experiment began with."""
    def next(self, timeout: float = -1, /) -> tuple[int, int, int, Any, str | None] | None:
        """(kind, trial or -1, from, row, message), or None when the experiment is over."""
    def pass_events(
        self,
        seconds: float,
        /,
    ) -> tuple[int, int, int, Any, str | None] | tuple[()] | None:
        """As next, but only for failures and notes; () when the time is up."""
    def rows(self, number: int, /) -> list[Any]:
        """All rows of a trial that count."""
    def stop(self, save: bool = False, /) -> None:
        """No further trial begins; save: those that run save first, and can go on later."""
    def stop_trial(self, number: int, /) -> None:
        """Ends one trial."""
    def trial(self, number: int, /) -> dict[str, Any]:
        """A trial as it is now."""

class View:
    """Bytes of somebody else."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Work:
    """An operation that was started."""
    def peer(self) -> int:
        """Of a receive that is over: who sent."""
    def test(self) -> bool:
        """Whether it is over."""
    def wait(self) -> None:
        """Raises what went wrong; any number of times."""

def address(buffer: Any, /) -> int:
    """Where its memory begins."""

def ahead(metrics: dict[str, Any], /) -> None:
    """The next save belongs to the report of these that follows it."""

def amx_cure() -> str | None:
    """NAME=VALUE that this CPU needs, or None."""

def apply_data(
    data: Data,
    options: dict[str, Any],
    call: Callable[[Batch], tuple[object, object]],
    pack: Callable[[], bytes | None] | None,
    /,
) -> Data:
    """A function over batches as a step. It gives an Arrow stream of one batch, or None, and the
    numbers of rows in 32 bits, or None; threads call it. pack gives it as bytes for
    manta._runtime.calls, or None if it cannot leave this process. options: name, kind (0 map, 1
    add, 2 filter, 3 any rows), batch_rows, columns, schema, each_row (a map of every row by
    itself)."""

def array_stream(schema: object, array: object, /) -> object:
    """The two capsules of __arrow_c_array__ as a capsule of a stream."""

def check() -> None:
    """Raises what report would raise now."""

def columns(
    rows: int,
    columns: list[tuple[str, str, int, tuple[int, ...], Any, Any, Any]],
    /,
) -> object:
    """An Arrow stream over memory of Python objects, which it holds. Of each column: name, format
    in Arrow's words, bits of an element, shape of a tensor, data, offsets of text, and the bitmap
    of values that are not null."""

def comm() -> Comm:
    """All ranks of the run."""

def config() -> Any:
    """The run's config."""

def departed() -> int:
    """A rank that has left its train function, or -1."""

def directory() -> str:
    """Where the user's files of the next report's checkpoint go."""

def embed(argv: list[str], /) -> bool:
    """This process is a driver."""

def ending_left() -> bool:
    """Whether these, or the open files, are others than at the beginning."""

def environment() -> dict[bytes, bytes]:
    """The C library's environment."""

def files() -> str:
    """A directory for files beside the next state."""

def heartbeat() -> None:
    """A sign of life."""

def import_data(stream: object, /) -> Data:
    """The rows of an Arrow stream, which are held in memory."""

def in_session() -> bool:
    """Whether a train function is running."""

def iteration() -> int:
    """Reports made so far."""

def knob(name: str, /) -> Any:
    """The value in force of a MANTA_* environment variable, by its type; None without one.
    ValueError says what would be right."""

def leave() -> None:
    """Ends the train function well, and the process at once."""

def load() -> Checkpoint | None:
    """The newest checkpoint, or None."""

def load_random() -> tuple[int, bytes] | None:
    """Those of the checkpoint that the attempt began from, and whose they are: this rank's, or else
    rank 0's."""

def next_any(
    runs: Sequence[Run | None],
    timeout: float = -1,
    /,
) -> tuple[int, tuple[list[Any], int, int, bool] | None]:
    """(index, what next() of that run gives). None: it is over, and its next() says how."""

def open_checkpoint(directory: str, verify: bool = True, /) -> Checkpoint:
    """One that lies on disk."""

def open_data(paths: list[str], options: dict[str, Any], /) -> Data:
    """The rows of files."""

def own_address() -> tuple[str, str]:
    """Where other hosts reach this one: an address, and the interface that has it."""

def payload() -> View:
    """The bytes that came with the run, until its function returns."""

def place() -> tuple[int, int, int, int, int, int]:
    """(rank, world size, local rank, local world size, node rank, attempt)."""

def preempted() -> bool:
    """Whether the run was asked to stop."""

def prestart(program: tuple[list[str], list[str]], threads: int, /) -> bool:
    """Starts (argv, env), that workers are forked from."""

def range_data(name: str, rows: int, shape: tuple[int, ...], /) -> Data:
    """Numbers from 0 on, or tensors that are full of them."""

def release() -> bool:
    """Ends what no trainer uses."""

def report(**metrics: Any) -> None:
    """Queues one row."""

def run_dir() -> str:
    """The run's directory, on the driver's host; empty outside of a run."""

def save(
    tensors: list[tuple[str, int, tuple[int, ...], int]],
    value: dict[str, Any],
    fill: Callable[..., None] | None = None,
    sharded: bool = False,
    /,
) -> None:
    """Snapshots a state: name, dtype, shape and address of each tensor, and a value."""

def save_random(states: bytes, /) -> None:
    """This rank's, for the checkpoint of the reports made so far."""

def serve(argv: list[str], warm: bool, /) -> bool:
    """Forks workers; comes back at the end of one. warm: later ones come from a successor."""

def serving() -> bool:
    """Whether this process was started to fork workers."""

def storage_check(uri: str, /) -> None:
    """ValueError or Error: nothing can be stored under this URI, and what can be done."""

def storage_download(uri: str, path: str, /) -> None:
    """All below the URI into a directory."""

def storage_fetch(uri: str, /) -> str:
    """Brings runs to the directory of this host that stands for the URI."""

def storage_has(uri: str, name: str, /) -> bool:
    """Whether an object lies below the URI."""

def storage_local(uri: str, /) -> str:
    """The directory of this host that stands for a URI."""

def storage_upload(path: str, uri: str, /) -> None:
    """Stores a file, or what is in a directory."""

def stream_data(
    schema: object,
    blocks: int,
    open: Callable[[int, list[int]], object],
    name: str,
    mark: int,
    /,
) -> Data:
    """Blocks that open(block, columns) reads when they are asked for: it gives an Arrow stream of
    the columns with these numbers, and is called by many threads. schema: a stream of all columns,
    of which nothing is read."""

def trial_config() -> Any:
    """The config of this trial."""

def tune_open(what: str | None, /) -> Tune:
    """Reads an experiment."""

def tune_start(
    payload: bytes,
    *,
    trainer: dict[str, Any] | None = None,
    space: Any = None,
    samples: int = 0,
    metric: str | None = None,
    maximize: bool = False,
    time_key: str | None = None,
    searcher: str | None = None,
    searcher_options: Any = None,
    own_searcher: Any = None,
    scheduler: str | None = None,
    scheduler_options: Any = None,
    own_scheduler: Any = None,
    seed: int = 0,
    concurrency: int = 0,
    reuse: bool = False,
    max_failures: int = 0,
    fail_fast: bool = False,
    stop: Any = None,
    stop_fn: Callable[[int, Any], int] | None = None,
    time_budget: float = 0,
    keep_last: int = 0,
    name: str | None = None,
    logdir: str | None = None,
    resume: str | None = None,
    retry_failed: bool = False,
    resources_fn: Callable[[int, Any], Any] | None = None,
    explore_fn: Callable[[int, Any], Any] | None = None,
    sinks: list[tuple[str, dict[str, Any]]] | None = None,
    trial_time: float = 0,
    keep_best: int = 0,
    score: str | None = None,
    score_min: bool = False,
    dir_fn: Callable[[int, Any], str] | None = None,
    output_fn: Callable[[int, int, str], None] | None = None,
    soft_stop: bool = False,
) -> Tune:
    """Begins an experiment, or goes on with one."""

def version() -> str:
    """Of libmanta."""

def view(address: int, bytes: int, owner: object, /) -> View:
    """Memory that the owner keeps alive."""

def watch_ending(counted: tuple[Any, ...], /) -> None:
    """Whose sizes, and what results, say whether something is left at the end."""

def write_checkpoint(
    directory: str,
    tensors: list[tuple[str, int, tuple[int, ...], int]],
    value: dict[str, Any],
    /,
) -> None:
    """A state as a checkpoint's directory, outside of a run."""

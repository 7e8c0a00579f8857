# SPDX-License-Identifier: Apache-2.0
"""The torch.distributed backend "manta": collectives of libmanta on CPU tensors.

Loaded where torch is. A blocking operation is done on the caller's thread; one with async_op=True
is started, and done by a thread of libmanta or by whoever waits for it first. What DDP and FSDP
start in a backward pass counts as blocking if there are no processors to spare: a second thread
would only take turns with the first.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from datetime import timedelta
from typing import Any, Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend as _TorchBackend
from torch._C._distributed_c10d import ProcessGroup, Work, _create_work_from_future

from manta import _manta
from manta._state.entry import NUMBER, TYPES

NAME = "manta"
_SHUFFLE_TAG = _manta.TAG_MAX  # of all_to_all with parts of different sizes; not for users

_in_backward: Callable[[], int] = torch._C._current_graph_task_id


# --- types and operations -------------------------------------------------------------------------


def _codes() -> dict[torch.dtype, tuple[int, int]]:
    """libmanta's number of a type, and how many of those an element is."""
    codes = {getattr(torch, name): (NUMBER[kind], 1) for name, kind in TYPES.items()}
    codes[torch.complex64] = (NUMBER["F32"], 2)
    codes[torch.complex128] = (NUMBER["F64"], 2)
    return codes


_CODES = _codes()
_BYTE = _CODES[torch.uint8][0]

_OPS = {"SUM": _manta.SUM, "AVG": _manta.MEAN, "PRODUCT": _manta.PROD, "MIN": _manta.MIN,
        "MAX": _manta.MAX}
_OPS_OF_BOOL = {"SUM": _manta.MAX, "PRODUCT": _manta.MIN, "MIN": _manta.MIN, "MAX": _manta.MAX,
                "BAND": _manta.MIN, "BOR": _manta.MAX}
_OPS_OF_COMPLEX = {"SUM": _manta.SUM, "AVG": _manta.MEAN}


def _number_of(op: Any, dtype: torch.dtype) -> int:
    """libmanta's number of a reduction."""
    name = getattr(op, "op", op).name
    table = (_OPS_OF_BOOL if dtype == torch.bool else _OPS_OF_COMPLEX if dtype.is_complex
             else _OPS)
    if name not in table or dtype not in _CODES:
        raise ValueError(f"the backend 'manta' has no ReduceOp.{name} of {dtype}; there are: "
                         f"{', '.join(table)}\nhint: a group made by "
                         f"dist.new_group(backend='gloo') has bitwise operations")
    return table[name]


def _items(t: Tensor) -> tuple[int, int]:
    """(how many, of which type) a tensor is to libmanta. What it does not know goes as bytes."""
    code, n = _CODES.get(t.dtype, (_BYTE, t.element_size()))
    return t.numel() * n, code


def _check(*tensors: Tensor) -> None:
    for t in tensors:
        if t.device.type != "cpu" or t.layout != torch.strided:
            raise ValueError(f"the backend 'manta' takes dense CPU tensors, not {t.layout} on "
                             f"{t.device}\nhint: GPUs need Trainer(use_gpu=True), or "
                             f"TorchConfig(backend='nccl')")


def _flat(t: Tensor) -> Tensor:
    """The tensor itself if its elements lie in a row, else a copy."""
    _check(t)
    return t if t.is_contiguous() else t.contiguous()


# --- works ----------------------------------------------------------------------------------------


class _Done(Work):
    """Of an operation that was done before it came back: the same for all."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> Any:
        return None

    def result(self) -> list[Tensor]:
        return []


_DONE = _Done()


def _done(tensors: list[Tensor]) -> Work:
    """The same with a result, for who asks for the future."""
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
    future.set_result(tensors)
    return _create_work_from_future(future)


class _Pending(Work):
    """What was started. Buffers live as long as this, which its group keeps until it is over."""

    def __init__(self, works: list[_manta.Work], tensors: list[Tensor], buffers: Any,
                 after: Callable[[], None] | None, completer: _Completer):
        super().__init__()
        self._works = works
        self._tensors = tensors
        self._buffers = buffers
        self._after = after
        self._completer = completer
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._future: Any = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if timeout > timedelta(0):
            self._look_until(time.monotonic() + timeout.total_seconds())
        with self._lock:
            try:
                for w in self._works:
                    w.wait()
            except BaseException as e:
                self._error = e
                raise
            if self._after is not None:
                self._after()
            self._after = self._buffers = None
        return True

    def _look_until(self, by: float) -> None:
        while not self.is_completed():
            if time.monotonic() > by:
                raise TimeoutError("the operation is not over in the time that wait() was given")
            time.sleep(0.0002)

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(w.test() for w in self._works)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Any:
        if self._error is None and self.is_completed():
            try:
                self.wait()
            except Exception:
                pass
        return self._error

    def result(self) -> list[Tensor]:
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        return self._works[0].peer()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A failure becomes that of the second future: torch keeps what a callback raises."""
        if self._future is None:
            over: torch.futures.Future[None] = torch.futures.Future()
            self._future = over.then(lambda _: self.result())
            self._completer.add(self, over)
        return self._future


class _Completer:
    """Completes futures of works: a thread, if anybody asks for one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[_Pending, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, work: _Pending, future: Any) -> None:
        self._queue.put((work, future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, args=(self._queue,), daemon=True,
                                            name="manta-futures")
            self._thread.start()

    @staticmethod
    def _serve(works: queue.SimpleQueue[tuple[_Pending, Any] | None]) -> None:
        while (item := works.get()) is not None:
            work, future = item
            try:
                work.wait()
            except Exception:
                pass  # the future's own callback meets it again
            future.set_result(None)
            del item, work, future

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None


# --- the operations -------------------------------------------------------------------------------


def _has_spare_processors() -> bool:
    """Whether every rank of this host has one for a second thread."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return len(os.sched_getaffinity(0)) // here > int(torch.get_num_threads())


class _Operations:
    """What torch.distributed calls on a group, by its names in several versions of torch."""

    _comm: _manta.Comm
    _n: int
    _me: int

    def _open(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta) -> None:
        self._n, self._me = comm.size(), comm.rank()
        self._ranks = ranks
        self._timeout = timeout
        self._spare = _has_spare_processors()
        self._flying: list[_Pending] = []
        self._completer = _Completer()
        self._take(comm)

    def _take(self, comm: _manta.Comm) -> None:
        self._comm = comm
        comm.set_timeout(self._timeout.total_seconds())

    def _rest(self) -> None:
        """Ends what is in flight."""
        self._comm.close()
        self._completer.close()
        self._flying.clear()

    def _is_blocking(self, opts: Any) -> bool:
        if not getattr(opts, "asyncOp", True):
            return True
        if self._spare or _in_backward() == -1:
            return False
        return all(w.is_completed() for w in self._flying)  # else it would wait for those

    def _run(self, opts: Any, call: Callable[..., Any], args: tuple[int, ...],
             tensors: list[Tensor], after: Callable[[], None] | None = None,
             buffers: Any = None) -> Work:
        """Does it, or starts it. `after` puts results into their places."""
        if not self._is_blocking(opts):
            return self._fly([call(*args, True)], tensors, buffers, after)
        call(*args)
        if after is not None:
            after()
        return _done(tensors) if getattr(opts, "asyncOp", True) else _DONE

    def _fly(self, works: list[_manta.Work], tensors: list[Tensor], buffers: Any,
             after: Callable[[], None] | None = None) -> _Pending:
        work = _Pending(works, tensors, (tensors, buffers), after, self._completer)
        self._flying = [w for w in self._flying if not w.is_completed()]
        self._flying.append(work)
        return work

    def _all(self, opts: Any, works: Iterable[Work], tensors: list[Tensor]) -> Work:
        """Several as one."""
        parts = [w for w in works]
        pending = [w for w in parts if isinstance(w, _Pending)]
        if not pending:
            return _done(tensors) if getattr(opts, "asyncOp", True) else _DONE

        def finish() -> None:
            for w in pending:
                w.wait()
        return self._fly([m for w in pending for m in w._works], tensors, pending, finish)

    # --- reductions -------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        if len(tensors) != 1:
            return self._all(opts, [self.allreduce([t], opts) for t in tensors], tensors)
        t = tensors[0]
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        if t.layout == torch.sparse_coo:
            return self._allreduce_sparse(t, op)
        x = _flat(t)
        number = _number_of(op, t.dtype)
        count, code = _items(x)
        at = x.data_ptr()
        after = None if x is t else lambda: t.copy_(x)
        return self._run(opts, self._comm.allreduce, (at, at, count, code, number), tensors, after,
                         x)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any) -> Work:
        t = tensors[0]
        x = _flat(t)
        number = _number_of(opts.reduceOp, t.dtype)
        count, code = _items(x)
        at, root = x.data_ptr(), opts.rootRank
        mine = root == self._me
        after = None if x is t or not mine else lambda: t.copy_(x)
        return self._run(opts, self._comm.reduce,
                         (at, at if mine else 0, count, code, number, root), tensors, after, x)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        if input.numel() != output.numel() * self._n or input.dtype != output.dtype:
            raise ValueError(f"reduce_scatter: {input.numel()} elements of {input.dtype} are not "
                             f"{self._n} times {output.numel()} of {output.dtype}")
        x, y = _flat(input), _flat(output)
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        count, code = _items(y)
        after = None if y is output else lambda: output.copy_(y)
        return self._run(opts, self._comm.reduce_scatter,
                         (x.data_ptr(), y.data_ptr(), count, code, _number_of(op, x.dtype)),
                         [output], after, (x, y))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor],
                                        opts: Any = None) -> Work:
        works = [self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs)]
        return self._all(opts, works, outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]],
                       opts: Any) -> Work:
        """Blocks of different shapes are a reduction each."""
        output, blocks = outputs[0], inputs[0]
        _check(*blocks)
        if all(b.shape == output.shape for b in blocks):
            return self.reduce_scatter_single(output, torch.stack(blocks), opts)
        for root, block in enumerate(blocks):
            x = block.clone(memory_format=torch.contiguous_format)
            self._comm.reduce(x.data_ptr(), x.data_ptr() if root == self._me else 0, *_items(x),
                              _number_of(opts.reduceOp, x.dtype), root)
            if root == self._me:
                output.copy_(x.view(output.shape))
        return _done(outputs)

    def _allreduce_sparse(self, t: Tensor, op: Any) -> Work:
        """The rows of all, which the sum adds up."""
        if getattr(op, "op", op).name != "SUM":
            raise ValueError("the backend 'manta' can only sum sparse tensors")
        mine = t.coalesce()
        count = torch.tensor([mine._nnz()])
        counts = torch.empty(self._n, dtype=torch.int64)
        self._comm.allgather(count.data_ptr(), counts.data_ptr(), *_items(count))
        rows = counts.tolist()
        indices = self._gather_rows(mine.indices().t(), rows)
        values = self._gather_rows(mine.values(), rows)
        t.copy_(torch.sparse_coo_tensor(indices.t(), values, t.shape).coalesce())
        return _done([t])

    def _gather_rows(self, x: Tensor, rows: list[int]) -> Tensor:
        x = x.contiguous()
        out = x.new_empty((sum(rows), *x.shape[1:]))
        width = x[0].numel() if len(x) else out[0].numel() if len(out) else 0
        code, n = _CODES[x.dtype]
        counts = torch.tensor([r * width * n for r in rows])
        self._comm.allgatherv(x.data_ptr(), out.data_ptr(), counts.data_ptr(), code)
        return out

    # --- copies -----------------------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        t = tensors[0]
        if len(tensors) != 1:
            return self._all(opts, [self.broadcast([x], opts) for x in tensors], tensors)
        x = _flat(t)
        root = opts.rootRank if opts is not None else 0
        after = None if x is t or root == self._me else lambda: t.copy_(x)
        return self._run(opts, self._comm.broadcast, (x.data_ptr(), *_items(x), root), tensors,
                         after, x)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        if output.numel() != input.numel() * self._n or input.dtype != output.dtype:
            raise ValueError(f"all_gather: {output.numel()} elements of {output.dtype} are not "
                             f"{self._n} times {input.numel()} of {input.dtype}")
        x, y = _flat(input), _flat(output)
        after = None if y is output else lambda: output.copy_(y)
        return self._run(opts, self._comm.allgather, (x.data_ptr(), y.data_ptr(), *_items(x)),
                         [output], after, (x, y))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor],
                                    opts: Any = None) -> Work:
        works = [self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs)]
        return self._all(opts, works, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor],
                  opts: Any = None) -> Work:
        """Tensors of different ranks may have different shapes."""
        places, x = outputs[0], _flat(inputs[0])
        _check(*places)
        if len(places) != self._n or places[self._me].numel() != x.numel():
            raise ValueError(f"all_gather: {self._n} tensors are wanted, of which this rank's has "
                             f"the size of its input")
        sizes = [p.numel() for p in places]
        code, n = _CODES.get(x.dtype, (_BYTE, x.element_size()))
        whole = x.new_empty(sum(sizes))

        def spread() -> None:
            for place, part in zip(places, whole.split(sizes)):
                place.copy_(part.view(place.shape))
        if min(sizes) == max(sizes):
            return self._run(opts, self._comm.allgather,
                             (x.data_ptr(), whole.data_ptr(), *_items(x)), places, spread,
                             (x, whole))
        counts = torch.tensor([s * n for s in sizes])
        return self._run(opts, self._comm.allgatherv,
                         (x.data_ptr(), whole.data_ptr(), counts.data_ptr(), code), places, spread,
                         (x, whole, counts))

    def allgather_coalesced(self, output_lists: list[list[Tensor]], inputs: list[Tensor],
                            opts: Any = None) -> Work:
        works = [self.allgather([o], [i], opts) for o, i in zip(output_lists, inputs)]
        return self._all(opts, works, [t for o in output_lists for t in o])

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        x, root = _flat(inputs[0]), opts.rootRank
        mine = root == self._me
        places = outputs[0] if mine else []
        if mine and any(p.numel() != x.numel() for p in places):
            raise ValueError("gather: all tensors must have the same size")
        whole = x.new_empty((self._n if mine else 0, x.numel()))

        def spread() -> None:
            for place, part in zip(places, whole):
                place.copy_(part.view(place.shape))
        return self._run(opts, self._comm.gather,
                         (x.data_ptr(), whole.data_ptr(), *_items(x), root), places, spread,
                         (x, whole))

    def gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        places = list(output.chunk(self._n)) if opts.rootRank == self._me else []
        return self.gather([places], [input], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        output, root = outputs[0], opts.rootRank
        y = _flat(output)
        mine = root == self._me
        if mine and any(p.numel() != y.numel() for p in inputs[0]):
            raise ValueError("scatter: all tensors must have the same size")
        whole = torch.stack([p.reshape(-1) for p in inputs[0]]) if mine else None
        after = None if y is output else lambda: output.copy_(y)
        return self._run(opts, self._comm.scatter,
                         (0 if whole is None else whole.data_ptr(), y.data_ptr(), *_items(y), root),
                         outputs, after, (whole, y))

    def barrier(self, opts: Any = None) -> Work:
        return self._run(opts, self._comm.barrier, (), [])

    # --- everybody to everybody -------------------------------------------------------------------

    def all_to_all_single(self, output: Tensor, input: Tensor, output_splits: Sequence[int],
                          input_splits: Sequence[int], opts: Any = None) -> Work:
        x, y = _flat(input), _flat(output)
        after = None if y is output else lambda: output.copy_(y)
        if not output_splits and not input_splits:
            if x.numel() != y.numel() or x.shape[0] % self._n or y.shape[0] % self._n:
                raise ValueError(f"all_to_all: {tuple(x.shape)} and {tuple(y.shape)} are not "
                                 f"{self._n} equal parts each")
            count, code = _items(x)
            return self._run(opts, self._comm.alltoall,
                             (x.data_ptr(), y.data_ptr(), count // self._n, code), [output], after,
                             (x, y))
        parts_in = x.split(list(input_splits) or [x.shape[0] // self._n] * self._n)
        parts_out = y.split(list(output_splits) or [y.shape[0] // self._n] * self._n)
        return self._shuffle(opts, parts_out, parts_in, [output], after, (x, y))

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        xs, ys = [_flat(t) for t in inputs], [_flat(t) for t in outputs]

        def after() -> None:
            for t, y in zip(outputs, ys):
                if y is not t:
                    t.copy_(y)
        return self._shuffle(opts, ys, xs, outputs, after, (xs, ys))

    def _shuffle(self, opts: Any, outputs: Sequence[Tensor], inputs: Sequence[Tensor],
                 tensors: list[Tensor], after: Callable[[], None] | None, buffers: Any) -> Work:
        """Parts of any size: a message to each, and one from each."""
        if len(outputs) != self._n or len(inputs) != self._n:
            raise ValueError(f"all_to_all: {self._n} parts are wanted, not {len(inputs)} and "
                             f"{len(outputs)}")
        outputs[self._me].copy_(inputs[self._me].view(outputs[self._me].shape))
        works = []
        for i in range(1, self._n):
            to, source = (self._me + i) % self._n, (self._me - i) % self._n
            x, y = inputs[to], outputs[source]
            works.append(self._comm.recv(y.data_ptr(), *_items(y), source, _SHUFFLE_TAG, True))
            works.append(self._comm.send(x.data_ptr(), *_items(x), to, _SHUFFLE_TAG, True))
        work = self._fly(works, tensors, buffers, after)
        if self._is_blocking(opts):
            work.wait()
        return work

    # --- one to one -------------------------------------------------------------------------------

    def _tag(self, tag: int) -> int:
        if not 0 <= tag < _SHUFFLE_TAG:
            raise ValueError(f"tag {tag}: 0 to {_SHUFFLE_TAG - 1} are possible")
        return tag

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> Work:
        x = _flat(tensors[0])
        w = self._comm.send(x.data_ptr(), *_items(x), dst, self._tag(tag), True)
        return self._fly([w], tensors, x)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> Work:
        t = tensors[0]
        x = _flat(t)
        w = self._comm.recv(x.data_ptr(), *_items(x), src, self._tag(tag), True)
        return self._fly([w], tensors, x, None if x is t else lambda: t.copy_(x))

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, -1, tag)

    # --- the group --------------------------------------------------------------------------------

    def size(self) -> int:
        return self._n

    def rank(self) -> int:
        return self._me

    getSize, getRank = size, rank

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._comm.set_timeout(timeout.total_seconds())

    _set_default_timeout = set_timeout

    def name(self) -> str:
        return NAME

    getBackendName = _get_backend_name = name

    def shutdown(self) -> None:
        """Ends what is in flight. The group is of no use any more."""
        self._rest()
        if self in _live:
            _live.remove(self)

    abort = shutdown

    def _set_sequence_number_for_group(self) -> None:
        """Calls are compared by libmanta itself."""

    def _get_sequence_number_for_group(self) -> int:
        return 0


class Group(_Operations, ProcessGroup):  # type: ignore[misc]
    """A process group for CPU tensors alone: torch calls it without a detour."""

    supports_coalescing = supports_splitting = False

    def __init__(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta):
        ProcessGroup.__init__(self, comm.rank(), comm.size())
        self._open(comm, ranks, timeout)
        self._name = self._desc = ""

    def _get_backend(self, device: torch.device) -> Any:
        return self

    get_backend = _get_backend

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    def getGroupName(self) -> str:
        return self._name

    @property
    def group_name(self) -> str:
        return self._name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    @property
    def group_desc(self) -> str:
        return self._desc


class CpuBackend(_Operations, _TorchBackend):
    """The part for CPU tensors of a group that has another for GPUs."""

    def __init__(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta):
        _TorchBackend.__init__(self, comm.rank(), comm.size())
        self._open(comm, ranks, timeout)


def can_be_a_part() -> bool:
    """Whether this torch lets a class in Python be one backend of several."""
    try:
        _TorchBackend.__init__(_TorchBackend.__new__(_TorchBackend), 0, 1)
    except TypeError:
        return False
    return True


# --- as torch makes them --------------------------------------------------------------------------

beside_gpus = False  # whether groups are to be parts of mixed ones


def _comm_of(ranks: list[int]) -> _manta.Comm:
    """Of those; without any, of all."""
    comm = _manta.comm()
    return comm.group(ranks) if ranks else comm


def _create(options: Any, _: Any) -> Group | CpuBackend:
    ranks = list(options.global_ranks_in_group)
    group = (CpuBackend if beside_gpus else Group)(_comm_of(ranks), ranks, options.timeout)
    _live.append(group)
    return group


# --- from call to call ----------------------------------------------------------------------------
#
# A communicator ends with the call of the function that it was made in. A group may outlive it:
# between two calls it rests, and in the next one it has another communicator.

_live: list[Group | CpuBackend] = []  # in the order in which they were made


def rest() -> None:
    for group in _live:
        group._rest()


def wake() -> None:
    """All ranks call it, and have made their groups in the same order."""
    for group in _live:
        group._take(_comm_of(group._ranks))


def forget() -> None:
    """Those that have ended with the default group."""
    _live.clear()


dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])

# SPDX-License-Identifier: Apache-2.0
"""The operations of torch.distributed as calls of libmanta."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any, Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Work

from manta import _manta
from manta._frameworks.torch.process_group import stage
from manta._frameworks.torch.process_group.codes import (BYTE, CODES, items, multiplied, name_of,
                                                         reduction)
from manta._frameworks.torch.process_group.roll import ANSWER_TAG, RollCall
from manta._frameworks.torch.process_group.work import DONE, Completer, Pending, done
from manta._runtime.errors import CollectiveTimeout

_SHUFFLE_TAG = _manta.TAG_MAX  # of all_to_all with parts of different sizes; not for users
_USER_TAGS = ANSWER_TAG  # those below

NAME = "manta"
_in_backward: Callable[[], int] = torch._C._current_graph_task_id
_is_profiled: Callable[[], bool] = torch.autograd._profiler_enabled


def _has_spare_processors() -> bool:
    """Whether every rank of this host has one for a second thread. A rank that computes on all of
    its CPUs has: most of a step is not computed on all of them."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return len(os.sched_getaffinity(0)) // here > 1


class Operations:
    """What torch.distributed calls on a group, by its names in several versions of torch."""

    _comm: _manta.Comm
    _n: int
    _me: int

    def _open(self, comm: _manta.Comm, ranks: list[int], timeout: timedelta) -> None:
        self._n, self._me = comm.size(), comm.rank()
        self._ranks = ranks
        self._timeout = timeout
        self._spare = _has_spare_processors()
        self._flying: list[Pending] = []
        self._gathered: list[Work] | None = None  # since start_coalescing
        self._sequence = 0
        self._roll = RollCall()
        self._completer = Completer()
        self._take(comm)

    def _take(self, comm: _manta.Comm) -> None:
        self._comm = comm
        comm.set_timeout(self._timeout.total_seconds())

    def _rest(self, tell: bool = True) -> None:
        """Ends what is in flight. tell: the other ranks are to know."""
        self._comm.close(tell)
        self._roll.forget()
        self._completer.close()
        self._flying.clear()

    def _is_blocking(self, opts: Any) -> bool:
        if not getattr(opts, "asyncOp", True):
            return True
        if self._spare or _in_backward() == -1:
            return False
        return all(w.is_completed() for w in self._flying)  # else it would wait for those

    def _run(self, opts: Any, call: Callable[..., Any], args: tuple[int, ...],
             tensors: list[Tensor], after: stage.Undo | None = None, buffers: Any = None,
             limit: float | None = None) -> Work:
        """Does it, or starts it. `after` puts results into their places. limit: in seconds, if the
        call has another than the group."""
        self._sequence += 1
        if not _is_profiled():
            return self._run_now(opts, call, args, tensors, after, buffers, limit)
        with torch.autograd.profiler.record_function(f"{NAME}:{call.__name__}"):
            return self._run_now(opts, call, args, tensors, after, buffers, limit)

    def _run_now(self, opts: Any, call: Callable[..., Any], args: tuple[int, ...],
                 tensors: list[Tensor], after: stage.Undo | None, buffers: Any,
                 limit: float | None) -> Work:
        if not self._is_blocking(opts):
            return self._fly([call(*args, True)], tensors, buffers, after, limit)
        try:
            call(*args) if limit is None else self._call_within(limit, call, args)
        except TimeoutError as e:
            raise CollectiveTimeout(str(e)) from None
        if after is not None:
            after()
        return done(tensors) if getattr(opts, "asyncOp", True) else DONE

    def _call_within(self, seconds: float, call: Callable[..., Any], args: tuple[int, ...]) -> None:
        self._comm.set_timeout(seconds)
        try:
            call(*args)
        finally:
            self._comm.set_timeout(self._timeout.total_seconds())

    def _fly(self, works: list[_manta.Work], tensors: list[Tensor], buffers: Any,
             after: stage.Undo | None = None, limit: float | None = None) -> Pending:
        work = Pending(works, tensors, (tensors, buffers), after, self._completer, limit)
        self._flying = [w for w in self._flying if not w.is_completed()]
        self._flying.append(work)
        if self._gathered is not None:
            self._gathered.append(work)
        return work

    def _all(self, opts: Any, works: Iterable[Work], tensors: list[Tensor]) -> Work:
        """Several as one."""
        pending = [w for w in works if isinstance(w, Pending)]
        if not pending:
            return done(tensors) if getattr(opts, "asyncOp", True) else DONE

        def finish() -> None:
            for w in pending:
                w.wait()
        return self._fly([m for w in pending for m in w.works], tensors, pending, finish)

    def _finish(self, seconds: float) -> None:
        """Waits for what is in flight, but not for ever: nobody may send what was asked for."""
        by = time.monotonic() + seconds
        while not all(w.is_completed() for w in self._flying) and time.monotonic() < by:
            time.sleep(0.0005)

    def start_coalescing(self, device: Any = None) -> None:
        self._gathered = []

    def end_coalescing(self, device: Any = None) -> Work:
        works, self._gathered = self._gathered or [], None
        return self._all(None, works, [])

    # --- reductions -------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        if len(tensors) != 1:
            return self._all(opts, [self.allreduce([t], opts) for t in tensors], tensors)
        t = tensors[0]
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        if t.layout == torch.sparse_coo:
            return self._allreduce_sparse(t, op)
        number, multiplies = reduction(op, t.dtype)
        x = multiplied(stage.read(t), op) if multiplies else stage.read(t)
        count, code = items(x)
        at = x.data_ptr()
        return self._run(opts, self._comm.allreduce, (at, at, count, code, number), tensors,
                         stage.back(t, x), x)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any) -> Work:
        t = tensors[0]
        op = opts.reduceOp
        number, multiplies = reduction(op, t.dtype)
        x = multiplied(stage.read(t), op) if multiplies else stage.read(t)
        count, code = items(x)
        at, root = x.data_ptr(), opts.rootRank
        mine = root == self._me
        after = stage.back(t, x) if mine else None
        return self._run(opts, self._comm.reduce,
                         (at, at if mine else 0, count, code, number, root), tensors, after, x)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        if input.numel() != output.numel() * self._n or input.dtype != output.dtype:
            raise ValueError(f"reduce_scatter: {input.numel()} elements of {input.dtype} are not "
                             f"{self._n} times {output.numel()} of {output.dtype}")
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        number, multiplies = reduction(op, input.dtype)
        x = multiplied(stage.read(input), op) if multiplies else stage.read(input)
        y = stage.room(output)
        count, code = items(y)
        return self._run(opts, self._comm.reduce_scatter,
                         (x.data_ptr(), y.data_ptr(), count, code, number), [output],
                         stage.back(output, y), (x, y))

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
        if len(blocks) != self._n or blocks[self._me].numel() != output.numel():
            raise ValueError(f"reduce_scatter takes {self._n} tensors, and this rank's must have "
                             f"the size of its output")
        stage.check(*blocks)
        if all(b.shape == output.shape for b in blocks):
            return self.reduce_scatter_single(output, torch.stack(blocks), opts)
        number, multiplies = reduction(opts.reduceOp, output.dtype)
        for root, block in enumerate(blocks):
            x = stage.read(block)
            x = multiplied(x, opts.reduceOp) if multiplies else x.clone()
            self._comm.reduce(x.data_ptr(), x.data_ptr() if root == self._me else 0, *items(x),
                              number, root)
            if root == self._me:
                stage.put(output, x)
        return done(outputs)

    def _allreduce_sparse(self, t: Tensor, op: Any) -> Work:
        """The rows of all, which the sum adds up."""
        if name_of(op) != "SUM":
            raise ValueError("the backend 'manta' can only sum sparse tensors")
        mine = t.coalesce().cpu()
        count = torch.tensor([mine._nnz()])
        counts = torch.empty(self._n, dtype=torch.int64)
        self._comm.allgather(count.data_ptr(), counts.data_ptr(), *items(count))
        rows = counts.tolist()
        indices = self._gather_rows(mine.indices().t(), rows)
        values = self._gather_rows(mine.values(), rows)
        t.copy_(torch.sparse_coo_tensor(indices.t(), values, t.shape).coalesce())
        return done([t])

    def _gather_rows(self, x: Tensor, rows: list[int]) -> Tensor:
        x = x.contiguous()
        out = x.new_empty((sum(rows), *x.shape[1:]))
        width = x[0].numel() if len(x) else out[0].numel() if len(out) else 0
        code, n = CODES[x.dtype]
        counts = torch.tensor([r * width * n for r in rows])
        self._comm.allgatherv(x.data_ptr(), out.data_ptr(), counts.data_ptr(), code)
        return out

    # --- copies -----------------------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        t = tensors[0]
        if len(tensors) != 1:
            return self._all(opts, [self.broadcast([x], opts) for x in tensors], tensors)
        root = opts.rootRank if opts is not None else 0
        x = stage.read(t) if root == self._me else stage.room(t)
        after = None if root == self._me else stage.back(t, x)
        return self._run(opts, self._comm.broadcast, (x.data_ptr(), *items(x), root), tensors,
                         after, x)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        if output.numel() != input.numel() * self._n or input.dtype != output.dtype:
            raise ValueError(f"all_gather: {output.numel()} elements of {output.dtype} are not "
                             f"{self._n} times {input.numel()} of {input.dtype}")
        x, y = stage.read(input), stage.room(output)
        return self._run(opts, self._comm.allgather, (x.data_ptr(), y.data_ptr(), *items(x)),
                         [output], stage.back(output, y), (x, y))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor],
                                    opts: Any = None) -> Work:
        works = [self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs)]
        return self._all(opts, works, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor],
                  opts: Any = None) -> Work:
        """Tensors of different ranks may have different shapes."""
        places, x = outputs[0], stage.read(inputs[0])
        stage.check(*places)
        if len(places) != self._n or places[self._me].numel() != x.numel():
            raise ValueError(f"all_gather takes {self._n} tensors, and this rank's must have the "
                             f"size of its input")
        sizes = [p.numel() for p in places]
        code, n = CODES.get(x.dtype, (BYTE, x.element_size()))
        whole = x.new_empty(sum(sizes))

        def spread() -> None:
            for place, part in zip(places, whole.split(sizes)):
                stage.put(place, part)
        if min(sizes) == max(sizes):
            return self._run(opts, self._comm.allgather,
                             (x.data_ptr(), whole.data_ptr(), *items(x)), places, spread,
                             (x, whole))
        counts = torch.tensor([s * n for s in sizes])
        return self._run(opts, self._comm.allgatherv,
                         (x.data_ptr(), whole.data_ptr(), counts.data_ptr(), code), places, spread,
                         (x, whole, counts))

    def allgather_coalesced(self, output_lists: list[list[Tensor]], inputs: list[Tensor],
                            opts: Any = None) -> Work:
        """A list of outputs has the tensors of one rank: as many as there are inputs."""
        works = [self.allgather([[of_rank[k] for of_rank in output_lists]], [x], opts)
                 for k, x in enumerate(inputs)]
        return self._all(opts, works, [t for o in output_lists for t in o])

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        x, root = stage.read(inputs[0]), opts.rootRank
        mine = root == self._me
        places = outputs[0] if mine else []
        if mine and any(p.numel() != x.numel() for p in places):
            raise ValueError("gather: all tensors must have the same size")
        whole = x.new_empty((self._n if mine else 0, x.numel()))

        def spread() -> None:
            for place, part in zip(places, whole):
                stage.put(place, part)
        return self._run(opts, self._comm.gather,
                         (x.data_ptr(), whole.data_ptr(), *items(x), root), places, spread,
                         (x, whole))

    def gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        places = list(output.chunk(self._n)) if opts.rootRank == self._me else []
        return self.gather([places], [input], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        output, root = outputs[0], opts.rootRank
        y = stage.room(output)
        mine = root == self._me
        if mine and any(p.numel() != y.numel() for p in inputs[0]):
            raise ValueError("scatter: all tensors must have the same size")
        whole = stage.read(torch.stack([p.reshape(-1) for p in inputs[0]])) if mine else None
        after = stage.back(output, y)
        return self._run(opts, self._comm.scatter,
                         (0 if whole is None else whole.data_ptr(), y.data_ptr(), *items(y), root),
                         outputs, after, (whole, y))

    def barrier(self, opts: Any = None) -> Work:
        limit: timedelta | None = getattr(opts, "timeout", None)
        own = None if limit is None or limit <= timedelta(0) else limit.total_seconds()
        return self._run(opts, self._comm.barrier, (), [], limit=own)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier that names who did not come in time. timeout: also as part of the options that
        torch hands to a backend."""
        limit = getattr(timeout, "timeout", timeout)
        if limit is None or limit < timedelta(0):
            limit = self._timeout
        self._roll.call(self, limit, wait_all_ranks)

    # --- everybody to everybody -------------------------------------------------------------------

    def all_to_all_single(self, output: Tensor, input: Tensor, output_splits: Sequence[int],
                          input_splits: Sequence[int], opts: Any = None) -> Work:
        x, y = stage.read(input), stage.room(output)
        after = stage.back(output, y)
        if not output_splits and not input_splits:
            if x.numel() != y.numel() or x.shape[0] % self._n or y.shape[0] % self._n:
                raise ValueError(f"all_to_all: {tuple(x.shape)} and {tuple(y.shape)} are not "
                                 f"{self._n} equal parts each")
            count, code = items(x)
            return self._run(opts, self._comm.alltoall,
                             (x.data_ptr(), y.data_ptr(), count // self._n, code), [output], after,
                             (x, y))
        parts_in = x.split(list(input_splits) or [x.shape[0] // self._n] * self._n)
        parts_out = y.split(list(output_splits) or [y.shape[0] // self._n] * self._n)
        return self._shuffle(opts, parts_out, parts_in, [output], after, (x, y))

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        xs, ys = [stage.read(t) for t in inputs], [stage.room(t) for t in outputs]

        def after() -> None:
            for t, y in zip(outputs, ys):
                if undo := stage.back(t, y):
                    undo()
        return self._shuffle(opts, ys, xs, outputs, after, (xs, ys))

    def _shuffle(self, opts: Any, outputs: Sequence[Tensor], inputs: Sequence[Tensor],
                 tensors: list[Tensor], after: stage.Undo | None, buffers: Any) -> Work:
        """Parts of any size: a message to each, and one from each."""
        if len(outputs) != self._n or len(inputs) != self._n:
            raise ValueError(f"all_to_all takes {self._n} parts, not {len(inputs)} and "
                             f"{len(outputs)}")
        outputs[self._me].copy_(inputs[self._me].view(outputs[self._me].shape))
        works = []
        for i in range(1, self._n):
            to, source = (self._me + i) % self._n, (self._me - i) % self._n
            x, y = inputs[to], outputs[source]
            works.append(self._comm.recv(y.data_ptr(), *items(y), source, _SHUFFLE_TAG, True))
            works.append(self._comm.send(x.data_ptr(), *items(x), to, _SHUFFLE_TAG, True))
        work = self._fly(works, tensors, buffers, after)
        if self._is_blocking(opts):
            work.wait()
        return work

    # --- one to one -------------------------------------------------------------------------------

    def _tag(self, tag: int) -> int:
        if not 0 <= tag < _USER_TAGS:
            raise ValueError(f"tag {tag} is not in 0 to {_USER_TAGS - 1}")
        return tag

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> Work:
        x = stage.read(tensors[0])
        w = self._comm.send(x.data_ptr(), *items(x), dst, self._tag(tag), True)
        return self._fly([w], tensors, x)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> Work:
        t = tensors[0]
        x = stage.room(t)
        w = self._comm.recv(x.data_ptr(), *items(x), src, self._tag(tag), True)
        return self._fly([w], tensors, x, stage.back(t, x))

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, -1, tag)

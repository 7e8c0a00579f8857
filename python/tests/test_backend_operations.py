# SPDX-License-Identifier: Apache-2.0
"""The operations of the process group, each against what is computed on the spot."""

from __future__ import annotations

from typing import Any

import pytest

from crew import Crew, crew_of

pytest.importorskip("torch")

two, four = crew_of(2), crew_of(4)


DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64",
          "bool", "complex64")


def values(torch: Any, name: str, rank: int, shape: tuple[int, ...] = (5, 3)) -> Any:
    """What a rank has: small numbers, the same in every process that computes them."""
    dtype = getattr(torch, name)
    n = torch.Size(shape).numel()
    x = (torch.arange(n).reshape(shape) * 7 + rank * 3) % 5 + 1
    return x % 2 == rank % 2 if dtype == torch.bool else x.to(dtype)


def reduced(torch: Any, op: str, parts: list[Any]) -> Any:
    """The truth, in a type that is wide enough."""
    dtype = parts[0].dtype
    wide = torch.stack([p if p.is_complex() else p.to(torch.float64) for p in parts])
    how = {"SUM": wide.sum, "AVG": wide.mean, "PRODUCT": wide.prod}
    out = how[op](0) if op in how else wide.amin(0) if op == "MIN" else wide.amax(0)
    if dtype == torch.bool:
        return out != 0
    if op == "AVG" and not (dtype.is_floating_point or dtype.is_complex):
        out = out.trunc()
    return out.to(dtype)


def apart(torch: Any, x: Any) -> Any:
    """The same values, not in a row."""
    return torch.stack([x, x], -1)[..., 0] if x.dim() < 2 else x.t().contiguous().t()


@pytest.mark.parametrize("op", ["SUM", "AVG", "MIN", "MAX", "PRODUCT"])
def test_all_reduce(two: Crew, op: str) -> None:
    def check(torch: Any, rank: int, size: int) -> int:
        dist, done = torch.distributed, 0
        for name in DTYPES:
            if (name == "bool" and op == "AVG") or (name == "complex64" and op not in
                                                    ("SUM", "AVG")):
                continue
            want = reduced(torch, op, [values(torch, name, r) for r in range(size)])
            for way in ("plain", "apart", "async"):
                x = values(torch, name, rank)
                x = apart(torch, x) if way == "apart" else x
                assert x.is_contiguous() == (way != "apart")
                work = dist.all_reduce(x, getattr(dist.ReduceOp, op), async_op=way == "async")
                if way == "async":
                    assert work.wait() and work.is_completed() and work.is_success()
                assert torch.equal(x, want), (name, way, x, want)
                done += 1
        return done
    assert min(two(check)) >= 27


@pytest.mark.parametrize("n", [0, 1, 1000, 1 << 20])
def test_all_reduce_of_any_size(four: Crew, n: int) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        x = torch.arange(n, dtype=torch.float32) + rank
        torch.distributed.all_reduce(x)
        assert torch.equal(x, torch.arange(n, dtype=torch.float32) * size + 6)
    four(check)


def test_what_there_is_not_is_said(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        with pytest.raises(ValueError, match="(?s)ReduceOp.BXOR of torch.float32.*SUM"):
            dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR)
        with pytest.raises(ValueError, match="AVG of torch.bool"):
            dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG)
        with pytest.raises(ValueError, match="SUM of torch.float8_e5m2"):
            dist.all_reduce(torch.ones(2).to(torch.float8_e5m2))
        for tag in (4194301, 4194303):  # the last three are ours
            with pytest.raises(ValueError, match=f"tag {tag} is not in 0 to 4194300"):
                dist.send(torch.ones(1), 1 - rank, tag=tag)
        with pytest.raises(ValueError, match="not torch.sparse_csr"):
            dist.broadcast(torch.eye(2).to_sparse_csr(), 0)
        with pytest.raises(ValueError, match="tensors with data, not of the meta device"):
            dist.broadcast(torch.ones(2, device="meta"), 0)
    two(check)


def test_bitwise(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> int:
        import functools
        dist, done = torch.distributed, 0
        how = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
        for name in ("uint8", "int8", "int16", "int32", "int64", "uint16", "bool"):
            dtype = getattr(torch, name)
            parts = [(torch.arange(38).reshape(2, 19) * 7919 + 40503 * r).to(torch.int64) % 251
                     for r in range(size)]
            parts = [p % 2 == 1 if name == "bool" else p.to(dtype) for p in parts]
            for op, function in how.items():
                for x in (parts[rank].clone(), apart(torch, parts[rank])):
                    dist.all_reduce(x, getattr(dist.ReduceOp, op))
                    assert torch.equal(x, functools.reduce(function, parts)), (name, op)
                    done += 1
        x = torch.tensor([1 << rank])
        dist.reduce(x, 2, dist.ReduceOp.BOR)
        assert rank != 2 or x.item() == 15
        out = torch.zeros(1, dtype=torch.int64)
        dist.reduce_scatter_tensor(out, torch.full((4,), 1 << rank), dist.ReduceOp.BXOR)
        assert out.item() == 15
        return done
    assert set(four(check)) == {42}


def test_sum_of_what_was_multiplied(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        op = dist._make_nccl_premul_sum(0.5 if rank else 2.0)
        x, given = torch.tensor([1.0, 3.0]), torch.tensor([4.0, 6.0])
        dist.all_reduce(x, op)
        assert x.tolist() == [2.5, 7.5]
        out = torch.zeros(1)
        dist.reduce_scatter_tensor(out, given, op)
        assert out.item() == [10.0, 15.0][rank] and given.tolist() == [4.0, 6.0]
    two(check)


def test_tensors_of_any_form(two: Crew) -> None:
    """Without elements, without dimensions, negated by a bit, and with gaps."""
    def check(torch: Any, rank: int, size: int) -> None:
        dist, peer = torch.distributed, 1 - rank
        x = torch.tensor(1.0 + rank)
        dist.all_reduce(x)
        assert x.item() == 3
        got = [torch.zeros(()), torch.zeros(())]
        dist.all_gather(got, torch.tensor(float(rank)))
        assert [g.item() for g in got] == [0, 1]
        none = torch.zeros(0, 3)
        dist.all_reduce(none)
        dist.broadcast(none, 1)
        dist.all_gather([torch.zeros(0, 3)] * 2, none)
        dist.all_to_all_single(torch.zeros(0), torch.zeros(0))
        dist.all_to_all([torch.zeros(0), torch.zeros(2)], [torch.zeros(2 * rank)] * 2)
        less = torch._neg_view(torch.tensor([1.0, 2.0]))
        dist.all_reduce(less)
        assert less.tolist() == [-2, -4]
        z, w = torch.tensor([1 + 2j, 3 - 1j]), torch.zeros(4, dtype=torch.complex64)[::2]
        work = dist.isend(z, peer)
        dist.recv(w, peer)
        assert work.wait() and w.tolist() == [1 + 2j, 3 - 1j]
        every = torch.zeros(6, 2).t()[:, ::2]
        dist.broadcast(torch.full((2, 3), 7.0) if rank else every, 1)
        assert rank or (every == 7).all()
    two(check)


def test_many_types_to_one_and_back(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        for name in (*DTYPES, "complex128", "uint16"):
            parts = [values(torch, "int64", r).to(getattr(torch, name)) for r in range(size)]
            got = [torch.zeros_like(p) for p in parts] if rank else None
            dist.gather(parts[rank], got, dst=1)
            assert got is None or all(torch.equal(a, b) for a, b in zip(got, parts))
            out = torch.zeros_like(parts[0])
            dist.scatter(out, parts if rank else None, src=1)
            assert torch.equal(out, parts[rank])
            if name not in ("bool", "uint16"):
                x = parts[rank].clone()
                dist.reduce(x, 0)
                assert rank or torch.equal(x, parts[0] + parts[1])
    two(check)


def test_waiting_with_a_limit(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        from datetime import timedelta
        dist, peer = torch.distributed, 1 - rank
        y = torch.zeros(1)
        work = dist.irecv(y, peer, tag=3)
        for kind in (RuntimeError, TimeoutError):
            with pytest.raises(kind, match="timed out"):
                work.wait(timedelta(milliseconds=20))
        assert not work.is_completed()
        dist.barrier()
        dist.send(torch.full((1,), 5.0 + rank), peer, tag=3)
        assert work.wait(timedelta(seconds=30)) and y.item() == 5 + peer
        own = dist.new_group(timeout=timedelta(seconds=300))
        if rank == 0:
            late = dist.barrier(own, async_op=True, timeout=timedelta(milliseconds=20))
            with pytest.raises(RuntimeError, match="timed out"):
                late.wait()
        else:
            dist.recv(y, 0, tag=4)
            late = dist.barrier(own, async_op=True)
        dist.send(y, 1, tag=4) if rank == 0 else None
        assert late.wait(timedelta(seconds=30))
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 1 .*20 ms|0.02 s"):
                dist.barrier(own, timeout=timedelta(milliseconds=20))
        x = torch.ones(3)
        future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] + 1)
        assert future.wait().tolist() == [3, 3, 3]
    two(check)


def test_monitored_barrier(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> str:
        from datetime import timedelta
        dist = torch.distributed
        own = dist.new_group([0, 1, 3])
        short, long = timedelta(milliseconds=200), timedelta(seconds=30)
        for _ in range(3):
            dist.monitored_barrier(timeout=long)
        dist.monitored_barrier(own, timeout=long, wait_all_ranks=True)
        said = ""
        if rank != 1:
            try:
                dist.monitored_barrier(own, timeout=long if rank else short)
            except RuntimeError as e:
                said = str(e)
        dist.barrier()
        if rank == 0:
            with pytest.raises(RuntimeError, match="Ranks 1, 2, 3 failed to pass"):
                dist.monitored_barrier(timeout=short, wait_all_ranks=True)
            with pytest.raises(RuntimeError, match="Rank 0 timed out in monitoredBarrier"):
                dist.group.WORLD.monitored_barrier(timedelta(0))
        return said
    first, left_out, outside, third = four(check)
    assert first == "Rank 1 failed to pass monitoredBarrier in 200 ms"
    assert left_out == outside == ""
    assert third.startswith("Rank 2 successfully reached monitoredBarrier, but received errors")
    assert "another rank did not come" in third


def test_coalescing_of_a_device(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        xs = [torch.full((n,), 1.0 + rank) for n in (3, 5)]
        group = dist.group.WORLD
        group._start_coalescing(torch.device("cpu"))
        for x in xs:
            group.allreduce([x])
        group._end_coalescing(torch.device("cpu")).wait()
        assert all((x == 3).all() for x in xs)
    two(check)


def test_calls_through_the_dispatcher(two: Crew) -> None:
    """As C++ makes them: of the backend that the group has for a device."""
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        group = dist.group.WORLD
        assert group._device_types == [torch.device("cpu")]
        x = torch.ones(3) + rank
        op = dist.ReduceOp(dist.ReduceOp.SUM)
        _, work = torch.ops.c10d.allreduce_([x], group.boxed(), op.boxed(), None, True)
        dist.distributed_c10d.Work.unbox(work).wait()
        assert x.tolist() == [3, 3, 3]
    two(check)


def test_tensors_that_lie_elsewhere(two: Crew) -> None:
    """What goes through host memory, with ordinary memory that is said to be a device's."""
    def check(torch: Any, rank: int, size: int) -> Any:
        from manta._frameworks.torch.process_group import stage
        dist, peer = torch.distributed, 1 - rank
        there: set[int] = set()
        copies = {"in": 0, "out": 0}

        def device(x: Any) -> Any:
            there.add(x.data_ptr())
            return x

        def copy(to: Any, source: Any) -> None:
            copies["in" if source.data_ptr() in there else "out"] += 1
            to.copy_(source)
        stage._is_on_host, before = lambda t: t.data_ptr() not in there, stage._is_on_host
        stage._copy, plain = copy, stage._copy
        keep, seen = [], {}
        try:
            def new(value: float, *shape: int) -> Any:
                keep.append(device(torch.full(shape, value)))
                return keep[-1]

            def count(name: str) -> None:
                seen[name] = (copies["in"], copies["out"])
                copies.update({"in": 0, "out": 0})
            x = new(1.0 + rank, 4)
            dist.all_reduce(x)
            assert x.tolist() == [3] * 4
            count("all_reduce")
            work = dist.all_reduce(x, async_op=True)
            assert work.wait() and x.tolist() == [6] * 4
            count("async")
            x = new(float(rank), 3)
            dist.broadcast(x, 1)
            assert x.tolist() == [1] * 3
            count("broadcast")
            parts = [new(0.0, 2), new(0.0, 2)]
            dist.all_gather(parts, new(5.0 + rank, 2))
            assert [p.tolist() for p in parts] == [[5, 5], [6, 6]]
            count("all_gather")
            whole = new(0.0, 4)
            dist.all_gather_into_tensor(whole, new(float(rank), 2))
            assert whole.tolist() == [0, 0, 1, 1]
            count("all_gather_into_tensor")
            out = new(0.0, 2)
            dist.reduce_scatter_tensor(out, new(2.0, 4))
            assert out.tolist() == [4, 4]
            count("reduce_scatter")
            dist.all_to_all_single(whole, new(3.0 + rank, 4))
            assert whole.tolist() == [3, 3, 4, 4]
            count("all_to_all")
            work = dist.isend(new(9.0 + rank, 2), peer)
            y = new(0.0, 2)
            dist.recv(y, peer)
            assert work.wait() and y.tolist() == [9 + peer] * 2
            count("send and recv")
        finally:
            stage._is_on_host, stage._copy = before, plain
        return seen
    for rank, seen in enumerate(two(check)):
        assert seen == {"all_reduce": (1, 1), "async": (1, 1),
                        "broadcast": (1, 0) if rank == 1 else (0, 1), "all_gather": (1, 2),
                        "all_gather_into_tensor": (1, 1), "reduce_scatter": (1, 1),
                        "all_to_all": (1, 1), "send and recv": (1, 1)}


def test_different_calls_are_named(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        with pytest.raises(Exception, match="ranks make different calls: rank . allreduce of"):
            torch.distributed.all_reduce(torch.ones(2 + rank))
    two(check)


@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_and_reduce(two: Crew, root: int) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        for name in (*DTYPES, "float8_e4m3fn", "uint16", "complex128"):
            mine = (values(torch, "float32", rank).to(getattr(torch, name)))
            want = (values(torch, "float32", root).to(getattr(torch, name)))
            for x in (mine.clone(), apart(torch, mine)):
                dist.broadcast(x, root)
                assert torch.equal(x.float() if name != "complex128" else x,
                                   want.float() if name != "complex128" else want), name
        for x in (values(torch, "float64", rank), apart(torch, values(torch, "float64", rank))):
            dist.reduce(x, root)
            parts = [values(torch, "float64", r) for r in range(size)]
            assert rank != root or torch.equal(x, reduced(torch, "SUM", parts))
    two(check)


def test_all_gather(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        for name in DTYPES:
            parts = [values(torch, name, r) for r in range(size)]
            got = [torch.zeros_like(p) for p in parts]
            dist.all_gather(got, parts[rank])
            assert all(torch.equal(a, b) for a, b in zip(got, parts))
            far = [apart(torch, torch.zeros_like(p)) for p in parts]
            dist.all_gather(far, apart(torch, parts[rank]), async_op=True).wait()
            assert all(torch.equal(a, b) for a, b in zip(far, parts))
            whole = torch.zeros((2 * 5, 3), dtype=parts[0].dtype)
            dist.all_gather_into_tensor(whole, parts[rank])
            assert torch.equal(whole, torch.cat(parts))
        uneven = [torch.arange(3.0), torch.arange(8.0).reshape(2, 4)]
        got = [torch.zeros(3), torch.zeros(2, 4)]
        dist.all_gather(got, uneven[rank])
        assert all(torch.equal(a, b) for a, b in zip(got, uneven))
    two(check)


def test_reduce_scatter(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        blocks = [[values(torch, "float32", r * size + b) for b in range(size)]
                  for r in range(size)]
        want = reduced(torch, "SUM", [blocks[r][rank] for r in range(size)])
        out = torch.zeros(5, 3)
        dist.reduce_scatter(out, blocks[rank])
        assert torch.equal(out, want)
        out = apart(torch, torch.zeros(5, 3))
        dist.reduce_scatter_tensor(out, torch.cat(blocks[rank]), async_op=True).wait()
        assert torch.equal(out, want)
        dist.reduce_scatter_tensor(out, torch.cat(blocks[rank]), dist.ReduceOp.AVG)
        assert torch.equal(out, want / size)
        out = torch.zeros(2 + rank)
        dist.reduce_scatter(out, [torch.full((2,), 1.0 + rank), torch.full((3,), 5.0 + rank)])
        assert torch.equal(out, torch.full((2 + rank,), [3.0, 11.0][rank]))
    two(check)


@pytest.mark.parametrize("wait", ["at once", "later"])
def test_all_to_all(four: Crew, wait: str) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed

        def do(call: Any, *args: Any, **kwargs: Any) -> None:
            work = call(*args, **kwargs, async_op=wait == "later")
            assert work is None or work.wait()
        out = torch.zeros(size, 2)
        do(dist.all_to_all_single, out, torch.arange(size * 2.0).reshape(size, 2) + 100 * rank)
        assert out.tolist() == [[100.0 * r + 2 * rank, 100.0 * r + 2 * rank + 1]
                                for r in range(size)]
        # rank r sends r + k rows to rank k
        give, take = [rank + k for k in range(size)], [r + rank for r in range(size)]
        out = torch.full((sum(take), 3), -1.0)
        do(dist.all_to_all_single, out, torch.full((sum(give), 3), float(rank)), take, give)
        assert torch.equal(out, torch.cat([torch.full((r + rank, 3), float(r))
                                           for r in range(size)]))
        outs = [apart(torch, torch.zeros(2, 3)) for _ in range(size)]
        do(dist.all_to_all, outs, [torch.full((2, 3), 10.0 * rank + k) for k in range(size)])
        assert all(torch.equal(o, torch.full((2, 3), 10.0 * r + rank))
                   for r, o in enumerate(outs))
    four(check)


@pytest.mark.parametrize("root", [0, 3])
def test_gather_and_scatter(four: Crew, root: int) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        parts = [values(torch, "float32", r) for r in range(size)]
        got = [torch.zeros(5, 3) for _ in range(size)] if rank == root else None
        dist.gather(apart(torch, parts[rank]), got, dst=root)
        assert got is None or all(torch.equal(a, b) for a, b in zip(got, parts))
        out = apart(torch, torch.zeros(5, 3))
        dist.scatter(out, parts if rank == root else None, src=root)
        assert torch.equal(out, parts[rank])
    four(check)


def test_barrier_and_objects(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        dist.barrier()
        dist.barrier(async_op=True).wait()
        everybody = [None] * size
        dist.all_gather_object(everybody, {"rank": rank, "text": "x" * (rank * 9000)})
        assert [o["rank"] for o in everybody] == [0, 1]
        some = [("from", rank), rank]
        dist.broadcast_object_list(some, src=1)
        assert some == [("from", 1), 1]
        at_root: Any = [None] * size if rank == 0 else None
        dist.gather_object(rank * 10, at_root)
        assert at_root in (None, [0, 10])
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, ["a", "b"] if rank == 0 else None)
        assert mine == ["ab"[rank]]
    two(check)


def test_send_and_receive(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist, peer = torch.distributed, 1 - rank
        for n in (0, 1, 100_000):
            x = torch.arange(n, dtype=torch.float32)
            if rank == 0:
                dist.send(x, 1)
            else:
                y = apart(torch, torch.zeros(n))
                assert dist.recv(y, 0) == 0 and torch.equal(x, y)
        works = [dist.isend(torch.full((50_000,), 1.0 * t), peer, tag=t) for t in (1, 2, 3)]
        for t in (3, 1, 2):
            y = torch.zeros(50_000)
            works.append(dist.irecv(y, peer, tag=t))
            works[-1].wait()
            assert (y == t).all()
        assert all(w.wait() for w in works)
        ops = [dist.P2POp(dist.isend, torch.full((9,), float(rank)), peer),
               dist.P2POp(dist.irecv, y := torch.zeros(9), peer)]
        assert all(w.wait() for w in dist.batch_isend_irecv(ops)) and (y == peer).all()
        dist.send_object_list([{"a": 1}], 1) if rank == 0 else None
        got = [None]
        dist.recv_object_list(got, 0) if rank == 1 else None
        assert rank == 0 or got == [{"a": 1}]
    two(check)


def test_receive_from_anybody(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> list[int]:
        dist = torch.distributed
        if rank:
            dist.send(torch.full((3,), float(rank)), 0)
            return []
        seen = []
        for _ in range(size - 1):
            x = torch.zeros(3)
            seen.append(dist.recv(x))
            assert (x == seen[-1]).all()
        return seen
    assert sorted(four(check)[0]) == [1, 2, 3]


def test_coalesced(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        xs = [torch.full((n,), 1.0 + rank) for n in (1, 40, 9000)]
        with dist._coalescing_manager(async_ops=True) as many:
            for x in xs:
                dist.all_reduce(x)
        many.wait()
        assert all((x == 3).all() for x in xs)
        outs = [torch.zeros(2 * n) for n in (1, 40)]
        with dist._coalescing_manager():
            for out in outs:
                dist.all_gather_into_tensor(out, torch.full((len(out) // 2,), float(rank)))
        assert all(out.tolist() == [0.0] * (len(out) // 2) + [1.0] * (len(out) // 2)
                   for out in outs)
        lists = [[torch.zeros(n) for n in (1, 40)] for _ in range(size)]
        dist.all_gather_coalesced(lists, [torch.full((n,), float(rank)) for n in (1, 40)])
        assert all((t == r).all() for r, of_rank in enumerate(lists) for t in of_rank)
        parts = [torch.zeros(n) for n in (1, 40)]
        with dist._coalescing_manager():
            for part in parts:
                dist.reduce_scatter_tensor(part, torch.ones(2 * len(part)))
        assert all((part == 2).all() for part in parts)
    two(check)


def test_functional(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        import torch.distributed._functional_collectives as fc
        group = torch.distributed.group.WORLD
        assert fc.all_reduce(torch.ones(3), "sum", group).tolist() == [2.0] * 3
        assert fc.all_gather_tensor(torch.full((1,), float(rank)), 0, group).tolist() == [0, 1]
        assert fc.reduce_scatter_tensor(torch.ones(4), "avg", 0, group).tolist() == [1, 1]
    two(check)


def test_sparse(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        x = torch.sparse_coo_tensor([[rank, 4]], [[1.0, 2.0], [3.0, 4.0]], (6, 2))
        torch.distributed.all_reduce(x)
        want = torch.zeros(6, 2)
        want[0] = want[1] = torch.tensor([1.0, 2.0])
        want[4] = torch.tensor([6.0, 8.0])
        assert torch.equal(x.to_dense(), want)
        none = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0, 2), (6, 2))
        torch.distributed.all_reduce(none)
        assert none._nnz() == 0
    two(check)


def test_operations_from_two_threads(two: Crew) -> None:
    """One sends and receives while the other is in collectives."""
    def check(torch: Any, rank: int, size: int) -> None:
        import threading
        dist, wrong = torch.distributed, []

        def talk() -> None:
            for i in range(100):
                y = torch.zeros(10)
                if rank == 0:
                    dist.send(torch.full((10,), float(i)), 1)
                    dist.recv(y, 1)
                else:
                    dist.recv(y, 0)
                    dist.send(y, 0)
                if (y != i).any():
                    wrong.append(i)
        thread = threading.Thread(target=talk)
        thread.start()
        for i in range(100):
            x = torch.full((1000,), float(i))
            dist.all_reduce(x)
            assert (x == 2 * i).all()
        thread.join()
        assert not wrong
    two(check)

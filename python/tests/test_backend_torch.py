# SPDX-License-Identifier: Apache-2.0
"""The process group that a train function finds: its world, other groups beside it, and what is
built on top of it in torch."""

from __future__ import annotations

import os
from typing import Any, Callable

import pytest

from crew import Crew, crew_of
from manta.sgd import TorchConfig, Trainer

pytest.importorskip("torch")

two, four = crew_of(2), crew_of(4)
two_gloo = crew_of(2, backend="gloo")


# --- meeting --------------------------------------------------------------------------------------


def test_a_store_that_is_not_there_is_named(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> str:
        from datetime import timedelta

        from manta._frameworks.torch import world
        nobody = world._free_port("127.0.0.1")
        with pytest.raises(RuntimeError) as e:
            world._join_store(world._World("gloo", 1, 2, address="127.0.0.1"), str(nobody),
                              timedelta(seconds=1))
        return f"{nobody} {e.value}"

    for said in two(check):
        port = said.split()[0]
        assert f"cannot reach the store of rank 0 at 127.0.0.1, port {port}, from" in said
        assert "Host(address=" in said and "NAME@ADDRESS in MANTA_HOSTS" in said


# --- groups ---------------------------------------------------------------------------------------


def test_sub_groups(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
        mine = low if rank < 2 else high
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=mine)
        assert x.item() == (1.0 if rank < 2 else 5.0)
        assert (rank in (0, 1)) == (dist.get_rank(low) >= 0)
        odd = dist.new_group([3, 1])
        if rank in (1, 3):
            y = torch.zeros(1)
            dist.broadcast(y if rank == 1 else torch.ones(1) * 9, src=3, group=odd)
            assert rank != 1 or y.item() == 9
            objects = [None, None]
            dist.all_gather_object(objects, rank, group=odd)
            assert objects == [1, 3]
            dist.destroy_process_group(odd)
        if rank < 3:
            own = dist.new_group([0, 1, 2], use_local_synchronization=True)
            z = torch.ones(1)
            dist.all_reduce(z, group=own)
            assert z.item() == 3
        current, pairs = dist.new_subgroups(2)
        assert dist.get_world_size(current) == 2 and len(pairs) == 2
        current, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])
        assert dist.get_process_group_ranks(current) == ([0, 3] if rank in (0, 3) else [1, 2])
        dist.barrier()
    four(check)


def test_groups_by_splitting(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        half = dist.split_group(split_ranks=[[3, 1], [0, 2]])
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=half)
        assert x.item() == (4 if rank % 2 else 2)
        assert dist.get_group_rank(half, rank) == {3: 0, 1: 1, 0: 0, 2: 1}[rank]
        own = dist.split_group(half, [[1]])
        assert (own is dist.GroupMember.NON_GROUP_MEMBER) == (rank in (3, 0))
        if rank in (1, 2):
            dist.barrier(own)
            assert dist.get_process_group_ranks(own) == [rank]
        half.get_group_store().set("a", "b")
        dist.destroy_process_group(half)
    four(check)


# --- destroyed, and made again --------------------------------------------------------------------


def test_destroyed_and_made_again(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed

        def total(group: Any = None) -> float:
            x = torch.tensor([float(rank)])
            dist.all_reduce(x, group=group)
            return float(x.item())

        for again in range(3):
            assert total() == 6
            pair = dist.new_group([2 * (rank // 2), 2 * (rank // 2) + 1],
                                  use_local_synchronization=True)
            assert total(pair) == (1 if rank < 2 else 5)
            late = dist.all_reduce(torch.ones(5), async_op=True)  # finished by what comes now
            dist.destroy_process_group()
            assert late.is_completed() and not dist.is_initialized()
            with pytest.raises(Exception, match="(?i)not been initialized|initialize"):
                dist.barrier()
            how: dict[str, Any] = [{}, {"backend": "gloo", "world_size": size, "rank": rank},
                                   {"init_method": "env://"}][again]
            dist.init_process_group(**how)
            assert dist.get_backend() == "manta"
    four(check)


def test_another_world_after_the_first(four: Crew, tmp_path: Any) -> None:
    """Of fewer ranks, in another order, each with a store of its own."""
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        dist.destroy_process_group()
        if rank == 3:  # goes on alone
            dist.init_process_group("manta", store=dist.HashStore(), rank=0, world_size=1)
            dist.barrier()
        else:
            me = 2 - rank
            dist.init_process_group("manta", init_method=f"file://{tmp_path}/store", rank=me,
                                    world_size=3)
            got = [torch.zeros(1) for _ in range(3)]
            dist.all_gather(got, torch.tensor([float(rank)]))
            assert [g.item() for g in got] == [2, 1, 0]
            pair = dist.new_group([0, 2])
            if me != 1:
                x = torch.tensor([1.0 + rank])
                dist.all_reduce(x, group=pair)
                assert x.item() == 4
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/gloo", rank=rank,
                                world_size=size)
        assert dist.get_backend() == "gloo"
        dist.barrier()
    four(check)


def test_one_rank_goes_on_alone(two: Crew) -> None:
    """What knows nothing of the group that there was: is_initialized() says so."""
    def check(torch: Any, rank: int, size: int) -> bool:
        dist = torch.distributed
        dist.barrier()
        dist.destroy_process_group()
        return bool(dist.is_initialized())
    assert two(check) == [False, False]
    assert two(lambda torch, rank, size: torch.distributed.is_initialized()) == [True, True]


def test_a_profile_shows_collectives(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        with torch.profiler.profile() as profile:
            torch.distributed.all_reduce(torch.ones(3))
            torch.distributed.broadcast(torch.ones(3), 0, async_op=True).wait()
        names = {e.key for e in profile.key_averages()}
        assert {"manta:allreduce", "manta:broadcast"} <= names
    two(check)


# --- compilers and checkpoints --------------------------------------------------------------------


@pytest.mark.deadline(120)
def test_compiled(two: Crew) -> None:
    """The order that torch recommends, and collectives inside of what is compiled."""
    def check(torch: Any, rank: int, size: int) -> None:
        import torch.distributed._functional_collectives as fc
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        fit(torch, torch.compile(ddp, backend="aot_eager"), lambda x: x[rank::size])
        assert same(torch, alone, model)

        @torch.compile(backend="aot_eager", fullgraph=True)
        def step(x: Any) -> Any:
            y = fc.all_reduce(x * 2, "sum", torch.distributed.group.WORLD)
            z = fc.all_gather_tensor(x, 0, torch.distributed.group.WORLD)
            torch.distributed.all_reduce(x)
            return y + 1, z, x
        y, z, x = step(torch.full((2,), 1.0 + rank))
        assert (y.tolist(), z.tolist(), x.tolist()) == ([7, 7], [1, 1, 2, 2], [3, 3])
    two(check)


def test_a_checkpoint_in_the_background(two: Crew, tmp_path: Any) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        import torch.distributed.checkpoint as dcp
        model = torch.nn.parallel.DistributedDataParallel(net(torch))
        fit(torch, model, lambda x: x[rank::size])
        own = torch.distributed.new_group()  # its thread is in collectives while ours is
        saved = dcp.async_save({"model": model.state_dict()}, checkpoint_id=str(tmp_path / "a"),
                               process_group=own)
        x = torch.ones(2)
        torch.distributed.all_reduce(x)  # meanwhile
        saved.result()
        other = torch.nn.parallel.DistributedDataParallel(net(torch))
        state = {"model": other.state_dict()}
        dcp.load(state, checkpoint_id=str(tmp_path / "a"))
        assert same(torch, model.module, other.module) and x.tolist() == [2, 2]
    two(check)


def test_a_group_of_gloo_beside_ours(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        x = torch.tensor([1 << rank])
        dist.all_reduce(x, dist.ReduceOp.BOR, group=dist.new_group(backend="gloo"))
        assert x.item() == 3
    two(check)


def test_device_mesh(four: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        x = torch.tensor([float(rank)])
        torch.distributed.all_reduce(x, group=mesh.get_group("b"))
        assert x.item() == (1.0 if rank < 2 else 5.0)
        whole = torch.arange(16.0).reshape(4, 4)
        shared = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        assert torch.equal(shared.full_tensor(), whole)
        assert torch.equal((shared @ shared).full_tensor(), whole @ whole)
    four(check)


# --- training -------------------------------------------------------------------------------------


def net(torch: Any, batch_norm: bool = False) -> Any:
    nn = torch.nn
    torch.manual_seed(1)
    middle = [nn.BatchNorm1d(16)] if batch_norm else []
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.ReLU(), nn.Linear(16, 4)).double()


def batches(torch: Any, n: int = 4) -> list[Any]:
    g = torch.Generator().manual_seed(3)
    return [(torch.randn(8, 8, generator=g, dtype=torch.float64),
             torch.randn(8, 4, generator=g, dtype=torch.float64)) for _ in range(n)]


def fit(torch: Any, model: Any, part: Callable[[Any], Any], optimizer: Any = None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for x, y in batches(torch):
        optimizer.zero_grad()
        ((model(part(x)) - part(y)) ** 2).mean().backward()
        optimizer.step()


def same(torch: Any, a: Any, b: Any) -> bool:
    return all(torch.allclose(p, q, rtol=1e-9, atol=1e-12)
               for p, q in zip(a.state_dict().values(), b.state_dict().values()))


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True},
                                     {"gradient_as_bucket_view": True},
                                     {"bucket_cap_mb": 0.0001}], ids=str)
def test_ddp_is_one_process(two: Crew, options: dict[str, Any]) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x)
        ddp = torch.nn.parallel.DistributedDataParallel(model, **options)
        fit(torch, ddp, lambda x: x[rank::size])
        assert same(torch, alone, model)
    two(check)


def test_ddp_without_sync_and_with_sync_batch_norm(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        alone = net(torch)
        for x, y in batches(torch, 2):
            ((alone(x) - y) ** 2).mean().backward()
        ddp = torch.nn.parallel.DistributedDataParallel(net(torch))
        (x0, y0), (x1, y1) = [(x[rank::2], y[rank::2]) for x, y in batches(torch, 2)]
        with ddp.no_sync():
            ((ddp(x0) - y0) ** 2).mean().backward()
        ((ddp(x1) - y1) ** 2).mean().backward()
        for p, q in zip(alone.parameters(), ddp.parameters()):
            assert torch.allclose(p.grad, q.grad)
        with_norm = net(torch, batch_norm=True)
        ddp = torch.nn.parallel.DistributedDataParallel(with_norm)
        fit(torch, ddp, lambda x: x[rank::size])
        means = [None] * size
        torch.distributed.all_gather_object(means, with_norm[0].weight.sum().item())
        assert means[0] == means[1]
    two(check)


def test_ddp_with_comm_hook_and_sparse_gradients(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        alone, model = net(torch).float(), net(torch).float()
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
        for one in (alone, model):  # there are gradients already
            one(torch.ones(2, 8)).sum().backward()
        for r in range(size):
            (alone(torch.ones(2, 8) * r).sum() / size).backward()
        ddp(torch.ones(2, 8) * rank).sum().backward()
        for want, got in zip(alone.parameters(), model.parameters()):
            assert torch.allclose(want.grad, got.grad, rtol=0.02, atol=1e-3)
            assert torch.equal(got.grad, got.grad.bfloat16().float())  # they went as bf16
        words = torch.nn.Embedding(10, 3, sparse=True)
        ddp = torch.nn.parallel.DistributedDataParallel(words)
        ddp(torch.tensor([rank, 5])).sum().backward()
        assert words.weight.grad.to_dense()[[0, 1, 5]].sum(1).tolist() == [1.5, 1.5, 3.0]
    two(check)


def test_fsdp(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x)
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        fit(torch, model, lambda x: x[rank::size])
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        assert whole.keys() == alone.state_dict().keys() and whole
        assert all(torch.allclose(whole[k], v) for k, v in alone.state_dict().items())
        assert not same(torch, net(torch), alone)  # it has learned something
    two(check)


def test_zero_redundancy_optimizer(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        from torch.distributed.optim import ZeroRedundancyOptimizer
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x, torch.optim.Adam(alone.parameters(), 0.01))
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)
        fit(torch, ddp, lambda x: x[rank::size], zero)
        assert same(torch, alone, model)
    two(check)


def test_with_processors_to_spare(two: Crew) -> None:
    """Buckets are then reduced by another thread while the backward pass goes on."""
    def check(torch: Any, rank: int, size: int) -> bool:
        group = torch.distributed.group.WORLD
        group._spare = True
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x)
        ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
        fit(torch, ddp, lambda x: x[rank::size])
        assert same(torch, alone, model)
        return group._completer._thread is not None
    assert two(check) == [True, True]


def test_a_part_beside_another_for_gpus(two: Crew) -> None:
    """The class that mixed groups have for CPU tensors, without the GPUs."""
    def can(torch: Any, rank: int, size: int) -> bool:
        from manta._frameworks.torch import process_group
        return process_group.can_be_a_part()
    if not all(two(can)):
        pytest.skip("torch before 2.14 lets only C++ be a part of a mixed group")

    def check(torch: Any, rank: int, size: int) -> None:
        from manta._frameworks.torch import process_group
        dist = torch.distributed
        process_group.beside_gpus = True
        try:
            group = dist.new_group(backend="cpu:manta")
        finally:
            process_group.beside_gpus = False
        assert isinstance(group._get_backend(torch.device("cpu")), process_group.CpuBackend)
        x = torch.ones(3)
        dist.all_reduce(x, group=group)
        dist.all_reduce(x, group=group, async_op=True).wait()
        assert x.tolist() == [4.0] * 3
        objects = [None] * size
        dist.all_gather_object(objects, rank, group=group)
        assert objects == [0, 1]
        dist.monitored_barrier(group)
        swapped = dist.split_group(group, [[1, 0]])
        assert dist.get_rank(swapped) == 1 - rank
        y = torch.tensor([1 << rank])
        dist.all_reduce(y, dist.ReduceOp.BOR, group=swapped)
        assert y.item() == 3
        if rank == 0:
            with pytest.raises(RuntimeError, match="rank 0 is in none of the new groups"):
                dist.split_group(group, [[1]])
        else:
            assert dist.get_rank(dist.split_group(group, [[1]])) == 0
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x)
        ddp = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
        fit(torch, ddp, lambda x: x[rank::size])
        assert same(torch, alone, model)
    two(check)


# --- the world ------------------------------------------------------------------------------------


def test_environment(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> tuple[str, str]:
        import socket
        env = os.environ
        assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == (str(rank), "2", str(rank))
        assert env["MASTER_ADDR"] == "127.0.0.1"
        if rank == 0:
            socket.create_server(("127.0.0.1", int(env["MASTER_PORT"]))).close()
        store = torch.distributed.distributed_c10d._get_default_store()
        store.set(f"key{rank}", f"value{rank}")
        assert store.get(f"key{1 - rank}") == f"value{1 - rank}".encode()
        torch.distributed.barrier()
        return torch.distributed.get_backend(), env["MASTER_PORT"]
    results = two(check)
    assert results[0] == results[1] and results[0][0] == "manta"


@pytest.mark.parametrize("arguments", [{}, {"backend": "gloo"}, {"backend": "manta"},
                                       {"rank": -1, "world_size": 2}], ids=str)
def test_own_init_that_agrees_is_quiet(two: Crew, arguments: dict[str, Any]) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        dist = torch.distributed
        for _ in range(2):
            dist.init_process_group(**arguments)
            x = torch.ones(1)
            dist.all_reduce(x)
            assert x.item() == 2
            dist.destroy_process_group()
        assert not dist.is_initialized()
    two(check)


@pytest.mark.parametrize("arguments, text", [({"backend": "nccl"}, "'manta'.*use_gpu"),
                                             ({"world_size": 3}, "rank . of 2"),
                                             ({"rank": 5, "world_size": 2}, "rank=5")], ids=str)
def test_own_init_that_contradicts_is_an_error(two: Crew, arguments: dict[str, Any],
                                               text: str) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        with pytest.raises(ValueError, match=f"(?s){text}"):
            torch.distributed.init_process_group(**arguments)
    two(check)


@pytest.mark.parametrize("size", ["", "100"])
def test_the_flight_recorder_is_there_if_asked_for(monkeypatch: pytest.MonkeyPatch,
                                                   size: str) -> None:
    def hooks(torch: Any, rank: int, size: int) -> int | None:
        world = torch.distributed.distributed_c10d._world
        known = getattr(world, "pg_flight_recorder_hooks", None)  # since torch 2.15
        return None if known is None else len(known)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", size)
    crew = Crew(1)
    assert crew(hooks) in ([None], [1] if size else [0])
    crew.trainer.shutdown()


def test_nothing_stays_after_a_run(two: Crew) -> None:
    """Neither groups nor descriptors nor threads, nor a model in its wrapper."""
    def use(torch: Any, rank: int, size: int) -> None:
        import weakref
        dist = torch.distributed
        model = torch.nn.parallel.DistributedDataParallel(net(torch))
        fit(torch, model, lambda x: x)
        dist.all_reduce(torch.ones(10), group=dist.new_group([0, 1]), async_op=True)  # not waited
        torch.kept = [weakref.ref(model), weakref.ref(dist.group.WORLD)]

    def look(torch: Any, rank: int, size: int) -> tuple[Any, ...]:
        import threading
        alive = [r() is not None for r in torch.kept]
        del torch.kept
        return alive, len(os.listdir("/proc/self/fd")), threading.active_count()
    two(use)
    first = two(look)
    for _ in range(5):
        two(use)
        assert two(look) == first
    assert first[0][0] == [False, False]


def test_a_work_that_nobody_waits_for_ends_with_the_function(two: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> None:
        if rank == 0:
            torch.distributed.all_reduce(torch.ones(1000), async_op=True)
            torch.distributed.irecv(torch.ones(1000), 1)
    two(check)
    two(lambda torch, rank, size: torch.distributed.barrier())


def test_several_trainers_at_once(two: Crew, two_gloo: Crew) -> None:
    other = Crew(2)
    runs = [crew.trainer.run_generator(_many_sums) for crew in (two, two_gloo, other)]
    for run in runs:
        for _ in run:
            pass
    assert [run.get_returns() for run in runs] == [[100.0, 100.0]] * 3
    other.trainer.shutdown()


def _many_sums() -> float:
    import torch
    import torch.distributed as dist
    total = 0.0
    for _ in range(50):
        x = torch.ones(5)
        dist.all_reduce(x)
        total += x[0].item()
    return total


def test_gloo(two_gloo: Crew) -> None:
    def check(torch: Any, rank: int, size: int) -> str:
        alone, model = net(torch), net(torch)
        fit(torch, alone, lambda x: x)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        fit(torch, ddp, lambda x: x[rank::size])
        assert same(torch, alone, model)
        torch.distributed.init_process_group("gloo")
        return torch.distributed.get_backend()
    assert two_gloo(check) == ["gloo", "gloo"]
    assert two_gloo(check) == ["gloo", "gloo"]


@pytest.mark.parametrize("backend", ["manta", "gloo"])
def test_functions_that_return_at_once(two: Crew, two_gloo: Crew, backend: str) -> None:
    """Nobody is gone before the others are in."""
    crew = two if backend == "manta" else two_gloo
    for i in range(20):
        assert crew(lambda torch, rank, size: rank) == [0, 1]


def test_config() -> None:
    for wrong in ({"backend": "mpi"}, {"timeout_s": 0}, {"init_method": "over there"}):
        with pytest.raises(ValueError, match="TorchConfig"):
            TorchConfig(**wrong)
    assert TorchConfig().framework == "torch"


def test_nccl_without_a_gpu_is_an_error() -> None:
    crew = Crew(1, backend="nccl")
    with pytest.raises(RuntimeError, match="no GPU"):
        crew(lambda torch, rank, size: None)
    crew.trainer.shutdown()


def test_torch_computes_with_the_threads_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was loaded with before the fork, and in a second run as in the first."""
    def threads() -> tuple[int, int, str]:
        import threading
        import torch
        seen: list[int] = []
        other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()
        omp, = (line for line in torch.__config__.parallel_info().splitlines()
                if "omp_get_max_threads" in line)
        return torch.get_num_threads(), seen[0], omp.split()[-1]

    with Trainer("torch", num_workers=2, threads_per_worker=3, quiet=True) as t:
        assert t.run(threads) == [(3, 3, "3")] * 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Trainer("torch", num_workers=1, quiet=True) as t:
        assert t.run(threads) == [(2, 2, "2")]
        monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
        assert t.run(threads) == [(4, 4, "4")]

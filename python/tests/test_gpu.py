# SPDX-License-Identifier: Apache-2.0
"""Workers with GPUs: who sees which, revival with CUDA in use, a driver that uses CUDA itself."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from manta import _manta, sgd  # noqa: E402
from manta.sgd import Trainer  # noqa: E402

pytestmark = pytest.mark.gpu


def _look() -> tuple[str, int, str, str]:
    import torch
    x = torch.ones(3, device="cuda") * (sgd.world_rank() + 1)
    return (os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count(), str(x.device),
            str(float(x.sum())))


def test_a_worker_has_its_own_gpu(tmp_path: Path) -> None:
    with Trainer(use_gpu=True, logdir=tmp_path) as t:
        [(visible, count, device, total)] = t.run(_look)
    assert (count, device, total) == (1, "cuda:0", "3.0")
    assert visible.isdigit()


def test_several_workers_share_one(tmp_path: Path) -> None:
    with Trainer(num_workers=2, gpus_per_worker=0.5, logdir=tmp_path) as t:
        got = t.run(_look)
        assert [g[1:] for g in got] == [(1, "cuda:0", "3.0"), (1, "cuda:0", "6.0")]
        assert got[0][0] == got[1][0]
        assert "0.5" in str(t)


def test_a_worker_without_a_gpu_sees_none(tmp_path: Path) -> None:
    def look() -> bool:
        import torch
        return torch.cuda.is_available()

    with Trainer(logdir=tmp_path) as t:
        assert t.run(look) == [False]


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    n = torch.cuda.device_count() + 1
    with pytest.raises((ValueError, RuntimeError), match=f"{n} GPUs.*this host has"):
        Trainer(num_workers=n, use_gpu=True, logdir=tmp_path).run(_look)


def test_a_driver_that_uses_cuda_itself(tmp_path: Path) -> None:
    x = torch.ones(1000, device="cuda")
    assert float(x.sum()) == 1000
    with Trainer(use_gpu=True, logdir=tmp_path) as t:
        assert t.run(_look)[0][3] == "3.0"


def _train(config: dict[str, Any]) -> tuple[int, int, float]:
    """Steps on the GPU; rank 1 dies in the middle of the first attempt."""
    import torch
    model = torch.nn.Linear(64, 64).cuda()
    saved = sgd.load_checkpoint()
    step = 0
    if saved is not None:
        model.load_state_dict(saved["model"])
        step = saved["step"]
    attempt = _manta.place()[5]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while step < config["steps"]:
        optimizer.zero_grad()
        model(torch.ones(8, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        step += 1
        sgd.report(step=step)
        sgd.save_checkpoint(model=model.state_dict(), step=step)
        if attempt == 0 and step == 3:
            _manta.comm().barrier()  # there is a checkpoint
            if sgd.world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        if attempt == 0 and step >= 3:
            time.sleep(0.05)
    return attempt, os.getpid(), float(next(model.parameters()).sum())


@pytest.mark.parametrize("keep", [False, True])
def test_a_kill_with_cuda_in_use(tmp_path: Path, keep: bool) -> None:
    """A survivor has its context again if workers are kept, and a new one if not."""
    with Trainer(num_workers=2, gpus_per_worker=0.5, logdir=tmp_path, quiet=True,
                 backend="torch", keep_workers=keep) as t:
        before = t.execute(os.getpid)
        got = t.run(_train, {"steps": 40})
    assert [g[0] for g in got] == [1, 1]
    assert [now == was for (_, now, _), was in zip(got, before)] == [keep, False]
    assert got[0][2] == got[1][2]


def test_ddp_on_a_gpu(tmp_path: Path) -> None:
    def train() -> tuple[str, float]:
        import torch
        import torch.distributed as dist
        model = sgd.prepare_model(torch.nn.Linear(4, 1, bias=False))
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        x = torch.ones(2, device="cuda")
        if dist.is_initialized():
            dist.all_reduce(x)
        return str(next(model.parameters()).device), float(x.sum())

    with Trainer(use_gpu=True, logdir=tmp_path) as t:
        assert t.run(train) == [("cuda:0", 2.0)]


# --- a GPU that workers share, and the backend "manta" --------------------------------------------


def _shared(how: Any, tmp_path: Path, **config: Any) -> list[Any]:
    from manta.sgd import TorchConfig
    with Trainer(TorchConfig(**config), num_workers=2, gpus_per_worker=0.5, logdir=tmp_path,
                 quiet=True, max_retries=0) as t:
        return t.run(how)


@pytest.mark.parametrize("backend", [None, "manta"])
def test_collectives_on_a_shared_gpu(tmp_path: Path, backend: str | None) -> None:
    def train() -> str:
        import torch
        import torch.distributed as dist
        rank, peer = dist.get_rank(), 1 - dist.get_rank()

        def on_gpu(x: float, *shape: int) -> Any:
            return torch.full(shape, x, device="cuda")

        x = on_gpu(1.0 + rank, 1000)
        dist.all_reduce(x)
        assert x.is_cuda and (x == 3).all()
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert work.is_completed() and (x + 1 == 7).all()
        x = on_gpu(float(rank), 3, 5).t()
        dist.broadcast(x, 1)
        assert (x == 1).all()
        parts = [on_gpu(0.0, 4), on_gpu(0.0, 4)]
        dist.all_gather(parts, on_gpu(5.0 + rank, 4))
        assert [p.tolist() for p in parts] == [[5.0] * 4, [6.0] * 4]
        whole = on_gpu(0.0, 8)
        dist.all_gather_into_tensor(whole, on_gpu(float(rank), 4))
        assert whole.tolist() == [0.0] * 4 + [1.0] * 4
        part = on_gpu(0.0, 4).half()
        dist.reduce_scatter_tensor(part, on_gpu(1.0 + rank, 8).half())
        assert (part == 3).all()
        dist.all_to_all_single(whole, on_gpu(10.0 + rank, 8))
        assert whole.tolist() == [10.0] * 4 + [11.0] * 4
        got = [on_gpu(0.0, 2), on_gpu(0.0, 2)] if rank == 0 else None
        dist.gather(on_gpu(1.0 + rank, 2), got)
        assert got is None or [g.tolist() for g in got] == [[1, 1], [2, 2]]
        out = on_gpu(0.0, 2)
        dist.scatter(out, [on_gpu(7.0, 2), on_gpu(8.0, 2)] if rank == 1 else None, src=1)
        assert (out == 7 + rank).all()
        sent = dist.isend(on_gpu(20.0 + rank, 50_000), peer)
        y = on_gpu(0.0, 50_000)
        dist.recv(y, peer)
        sent.wait()
        assert (y == 20 + peer).all()
        bits = torch.tensor([1 << rank], device="cuda")
        dist.all_reduce(bits, dist.ReduceOp.BOR)
        assert bits.item() == 3
        here = torch.ones(2)
        dist.all_reduce(here)  # beside them
        assert here.tolist() == [2, 2]
        future = dist.all_reduce(on_gpu(1.0, 3), async_op=True).get_future()
        assert future.wait()[0].tolist() == [2, 2, 2]
        sparse = torch.sparse_coo_tensor([[rank]], [1.0], (2,)).cuda()
        dist.all_reduce(sparse)
        assert sparse.to_dense().tolist() == [1, 1]
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        assert [o["rank"] for o in objects] == [0, 1]
        dist.barrier(device_ids=[0])
        return str(dist.get_backend())

    assert _shared(train, tmp_path, backend=backend) == ["manta", "manta"]


def test_ddp_on_a_shared_gpu_is_one_process(tmp_path: Path) -> None:
    def train() -> float:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        rank, size = dist.get_rank(), dist.get_world_size()

        def fit(model: Any, part: Any) -> None:
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
            g = torch.Generator().manual_seed(3)
            for _ in range(4):
                x = torch.randn(8, 8, generator=g, dtype=torch.float64).cuda()
                optimizer.zero_grad()
                model(part(x)).square().mean().backward()
                optimizer.step()

        def net() -> Any:
            torch.manual_seed(1)
            return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                       torch.nn.Linear(16, 4)).double().cuda()
        alone, model = net(), net()
        fit(alone, lambda x: x)
        for options in ({}, {"bucket_cap_mb": 0.0001}, {"static_graph": True}):
            model = net()
            fit(DistributedDataParallel(model, device_ids=[0], **options), lambda x: x[rank::size])
            assert all(torch.allclose(p, q, rtol=1e-9, atol=1e-12)
                       for p, q in zip(alone.parameters(), model.parameters()))
        return float(next(model.parameters()).sum())

    first, second = _shared(train, tmp_path)
    assert first == second


def test_one_gpu_each_is_for_nccl(tmp_path: Path) -> None:
    def train() -> tuple[str, float]:
        import torch
        import torch.distributed as dist
        x, y = torch.ones(2, device="cuda"), torch.ones(2)
        dist.all_reduce(x)
        dist.all_reduce(y)
        return str(dist.get_backend_config()), float((x.cpu() + y).sum())

    n = torch.cuda.device_count()
    from manta.sgd import TorchConfig
    with Trainer(TorchConfig(backend="manta"), num_workers=n, use_gpu=True, logdir=tmp_path,
                 quiet=True) as t:
        for config, total in t.run(train):
            assert "cuda:nccl" in config and total == 4 * n

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


def test_a_kill_with_cuda_in_use(tmp_path: Path) -> None:
    with Trainer(num_workers=2, gpus_per_worker=0.5, logdir=tmp_path, quiet=True,
                 backend="torch") as t:
        before = t.run(os.getpid)
        got = t.run(_train, {"steps": 40})
    assert [g[0] for g in got] == [1, 1]
    assert got[0][1] == before[0] and got[1][1] != before[1]  # the survivor kept its context
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

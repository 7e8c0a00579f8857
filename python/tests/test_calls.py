# SPDX-License-Identifier: Apache-2.0
"""The process group of calls between runs: execute, workers as objects."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

pytest.importorskip("torch")

import manta  # noqa: E402
from manta import sgd  # noqa: E402
from manta.sgd import Trainer, TorchConfig, WorkerGroup  # noqa: E402


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(backend="torch", num_workers=2, logdir=tmp_path_factory.mktemp("runs")) as t:
        yield t


@pytest.fixture(params=["manta", "gloo"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trainer]:
    """A trainer for one test, whose workers may die."""
    config = TorchConfig(backend=request.param)
    with Trainer(backend=config, num_workers=2, logdir=tmp_path) as t:
        yield t


# --- in a worker ----------------------------------------------------------------------------------


def total() -> float:
    """The sum of what all ranks have, if the group works."""
    import torch
    import torch.distributed as dist
    x = torch.tensor([1.0 + sgd.world_rank()])
    dist.all_reduce(x)
    assert (dist.get_rank(), dist.get_world_size()) == (sgd.world_rank(), sgd.world_size())
    return x.item()


def token() -> int:
    from manta._frameworks.torch import world
    assert world._world is not None
    return world._world.token


class Learner:
    """Steps of DDP, one per call."""

    def __init__(self, prepare: bool = False):
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.model = (sgd.prepare_model(net) if prepare
                      else torch.nn.parallel.DistributedDataParallel(net))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.steps = 0
        assert isinstance(self.model, torch.nn.parallel.DistributedDataParallel)

    def step(self) -> float:
        import torch
        self.optimizer.zero_grad()
        rows = batch(torch, self.steps)[sgd.world_rank()::sgd.world_size()]
        loss = self.model(rows).square().mean()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.item()

    def fail(self) -> None:
        if sgd.world_rank() == 1:
            raise KeyError("on purpose")

    def weights(self) -> list[float]:
        return [p.sum().item() for p in self.model.parameters()]


def batch(torch: Any, step: int) -> Any:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def alone(steps: int) -> list[float]:
    """What one process gets."""
    import torch
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(steps):
        optimizer.zero_grad()
        net(batch(torch, step)).square().mean().backward()
        optimizer.step()
    return [p.sum().item() for p in net.parameters()]


# --- the group is there, and stays ----------------------------------------------------------------


def test_a_call_has_a_group(crew: Trainer) -> None:
    assert crew.execute(total) == [3.0, 3.0]
    first = crew.execute(token)
    assert first[0] == first[1] and crew.execute(token) == first
    assert crew.execute_single(token) == first[0]
    assert crew.execute(total) == [3.0, 3.0]
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        assert all(crew.execute(lambda: os.environ.get(name))), name


def test_one_worker(tmp_path: Path) -> None:
    with Trainer(backend="torch", num_workers=1, logdir=tmp_path) as t:
        assert t.execute(total) == [1.0]
        assert t.execute(token) == t.execute(token)


def test_no_framework_no_group(tmp_path: Path) -> None:
    def loaded() -> bool:
        import sys
        return "torch" in sys.modules
    with WorkerGroup(2, logdir=tmp_path) as group:
        assert group.execute(loaded) == [False, False]


@pytest.mark.parametrize("prepare", [False, True])
def test_a_class_trains_with_ddp(own: Trainer, prepare: bool) -> None:
    own.start(Learner, (prepare,))
    before = own.execute(lambda w: token())
    for _ in range(4):
        losses = own.execute(lambda w: w.step())
    assert len(losses) == 2
    got = own.execute(lambda w: w.weights())
    assert got[0] == got[1] and got[0] == pytest.approx(alone(4), abs=1e-5)
    assert own.execute(lambda w: token()) == before
    assert own.execute_single(lambda w: w.steps) == 4


def test_a_worker_group_trains_with_ddp(crew: Trainer) -> None:
    group = crew.to_worker_group(Learner)
    for _ in range(3):
        group.execute(lambda w: w.step())
    assert group[1].weights() == pytest.approx(alone(3), abs=1e-5)
    crew._has_instance = False


def test_groups_of_a_call_stay(crew: Trainer) -> None:
    def make() -> None:
        import builtins
        import torch.distributed as dist

        from manta._frameworks.torch import process_group
        both, gloo = dist.new_group([1, 0]), dist.new_group(backend="gloo")
        process_group.beside_gpus = True
        try:
            part = dist.new_group(backend="cpu:manta")  # as there is one beside NCCL
        finally:
            process_group.beside_gpus = False
        own = [dist.new_group([r]) for r in (0, 1)]
        builtins.kept = both, gloo, part, own[dist.get_rank()]  # type: ignore[attr-defined]

    def use() -> list[float]:
        import builtins

        import torch
        import torch.distributed as dist
        sums = []
        for group in builtins.kept:  # type: ignore[attr-defined]
            x = torch.tensor([1.0 + dist.get_rank()])
            dist.all_reduce(x, group=group)
            sums.append(x.item())
        return sums
    crew.execute(make)
    for _ in range(3):
        assert crew.execute(use) == [[3.0, 3.0, 3.0, 1.0], [3.0, 3.0, 3.0, 2.0]]


def test_what_is_left_in_flight_ends(crew: Trainer) -> None:
    def start() -> None:
        import builtins

        import torch
        import torch.distributed as dist
        x = torch.ones(3)
        work = dist.irecv(x, 1 - dist.get_rank())
        work.get_future() if hasattr(work, "get_future") else None
        builtins.left = work, x  # type: ignore[attr-defined]
    before = crew.execute(token)
    crew.execute(start)
    assert crew.execute(total) == [3.0, 3.0] and crew.execute(token) == before


# --- and ends -------------------------------------------------------------------------------------


def test_a_run_has_its_own(crew: Trainer) -> None:
    before = crew.execute(token)
    in_run = crew.run(token)
    after = crew.execute(token)
    assert len({before[0], in_run[0], after[0]}) == 3 and after[0] == after[1]
    assert crew.run(total) == crew.execute(total) == [3.0, 3.0]


def test_a_failed_call(own: Trainer) -> None:
    """Our own group goes on; of gloo there is a new one."""
    own.start(Learner)
    own.execute(lambda w: w.step())
    before = own.execute(lambda w: token())
    with pytest.raises(KeyError, match="on purpose"):
        own.execute(lambda w: w.fail())
    assert own.execute(lambda w: total()) == [3.0, 3.0]
    after = own.execute(lambda w: token())
    backend = own.execute_single(lambda w: __import__("torch").distributed.get_backend())
    assert after[0] == after[1] and (after == before) == (backend == "manta")
    if backend == "manta":
        own.execute(lambda w: w.step())
        assert own.execute(lambda w: w.weights())[1] == pytest.approx(alone(2), abs=1e-5)


def test_a_failure_while_others_wait(own: Trainer) -> None:
    def fail() -> None:
        if sgd.world_rank() == 1:
            raise KeyError("on purpose")
        total()
    own.execute(total)
    with pytest.raises(KeyError, match="on purpose"):
        own.execute(fail)
    assert own.execute(total) == [3.0, 3.0]
    assert len(set(own.execute(token))) == 1


def lose_one(path: str) -> float:
    import torch.distributed as dist
    dist.barrier()
    if sgd.world_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        return total()
    except Exception as e:
        Path(path).write_text(f"{type(e).__module__}.{type(e).__name__}: {e}")
        raise


def test_a_peer_is_lost_in_a_call(own: Trainer, tmp_path: Path) -> None:
    before = own.execute(token)
    backend = own.execute_single(lambda: __import__("torch").distributed.get_backend())
    with pytest.raises(manta.WorkerLost, match="rank 1.*SIGKILL"):
        own.execute(lose_one, str(tmp_path / "what"))
    if backend == "manta":
        said = (tmp_path / "what").read_text()
        assert "PeerLost" in said and "rank 1" in said
    assert own.execute(total) == [3.0, 3.0]
    assert own.execute(token)[0] != before[0]


def test_a_peer_is_lost_between_calls(own: Trainer) -> None:
    own.start(Learner)
    before = own.execute(lambda w: (os.getpid(), token()))
    os.kill(before[1][0], signal.SIGKILL)
    by = time.monotonic() + 30
    while Path(f"/proc/{before[1][0]}").exists() and time.monotonic() < by:
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="has no instance.*\nhint: start the class again"):
        own.execute(lambda w: w.step())
    own.start(Learner)
    after = own.execute(lambda w: (os.getpid(), token()))
    assert after[0][0] == before[0][0] and after[1][0] != before[1][0]
    assert after[0][1] == after[1][1] != before[0][1]
    for _ in range(2):
        own.execute(lambda w: w.step())
    assert own.execute(lambda w: w.weights())[0] == pytest.approx(alone(2), abs=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""A rank is killed in the middle of a step: the others learn who, at once, and all train on in a
new group: in fresh processes, or in their own if the trainer keeps its workers."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Callable

import pytest

import manta
from manta.sgd import Trainer, TorchConfig

pytest.importorskip("torch")

STEPS, FATAL = 8, 3


def note(place: str, name: str, **facts: Any) -> None:
    Path(place, name).write_text(json.dumps(facts))


def noted(place: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(place.glob(pattern))]


def train_and_die(place: str, hurt: Callable[[Any], None] | None = None) -> list[Any]:
    """A DDP loop; the last rank of the first attempt kills itself inside a backward pass."""
    import torch
    import torch.distributed as dist
    rank, size, first = dist.get_rank(), dist.get_world_size(), not list(Path(place).iterdir())
    dist.barrier()  # all have looked
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 400), torch.nn.ReLU(),
                                torch.nn.Linear(400, 400), torch.nn.ReLU(),
                                torch.nn.Linear(400, 1))
    if hurt is not None:
        hurt(torch)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def die(gradient: Any) -> None:
        note(place, "death", at=time.time(), rank=rank)
        os.kill(os.getpid(), signal.SIGKILL)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = ddp(torch.full((16, 20), float(rank))).pow(2).mean()
        if first and step == FATAL and rank == size - 1:
            model[2].weight.register_hook(die)
        try:
            loss.backward()
        except Exception as e:
            note(place, f"survivor-{rank}", at=time.time(), type=type(e).__name__, text=str(e),
                 step=step, pid=os.getpid())
            raise
        optimizer.step()
    sums = [torch.zeros(()) for _ in range(size)]
    dist.all_gather(sums, sum(p.detach().sum() for p in model.parameters()))
    return [os.getpid(), size, [s.item() for s in sums]]


def check_revival(place: Path, results: list[Any], size: int, text: str, keep: bool) -> None:
    death, = noted(place, "death")
    survivors = noted(place, "survivor-*")
    assert death["rank"] == size - 1
    assert len(survivors) == size - 1, "every survivor sees the loss in its backward pass"
    for s in survivors:
        assert s["step"] == FATAL and text in s["text"], s
    assert [r[1] for r in results] == [size] * size
    pids, were = {r[0] for r in results}, {s["pid"] for s in survivors}
    assert were <= pids if keep else not were & pids
    assert all(r[2] == [results[0][2][0]] * size for r in results), "and end with equal weights"


@pytest.mark.parametrize("size, keep", [(2, False), (2, True), (3, False)])
def test_killed_in_backward(tmp_path: Path, size: int, keep: bool) -> None:
    with Trainer(TorchConfig(), num_workers=(size, size), max_retries=1, quiet=True,
                 keep_workers=keep) as trainer:
        results = trainer.run(lambda: train_and_die(str(tmp_path)))
    check_revival(tmp_path, results, size, f"rank {size - 1}", keep)
    assert all(s["type"] == "PeerLost" for s in noted(tmp_path, "survivor-*"))


def test_killed_while_another_thread_reduces(tmp_path: Path) -> None:
    """The failure then comes through a future."""
    def spare(torch: Any) -> None:
        torch.distributed.group.WORLD._spare = True
    with Trainer(TorchConfig(), num_workers=(2, 2), max_retries=1, quiet=True,
                 keep_workers=True) as trainer:
        results = trainer.run(lambda: train_and_die(str(tmp_path), spare))
    check_revival(tmp_path, results, 2, "rank 1", True)


def test_killed_in_backward_with_gloo(tmp_path: Path) -> None:
    with Trainer(TorchConfig(backend="gloo"), num_workers=(2, 2), max_retries=1,
                 quiet=True) as trainer:
        results = trainer.run(lambda: train_and_die(str(tmp_path)))
    check_revival(tmp_path, results, 2, "", False)


def wait_and_see(place: str, wait: str) -> int:
    """Rank 1 dies while rank 0 waits for it."""
    import torch
    import torch.distributed as dist
    rank, first = dist.get_rank(), not list(Path(place).iterdir())
    pair = dist.new_group([0, 1])
    dist.barrier()
    if not first:
        return os.getpid()
    if rank == 1:
        time.sleep(0.1)
        note(place, "death", rank=1)
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.zeros(100)
    try:
        if wait == "recv":
            dist.recv(x, 1)
        elif wait == "anybody":
            dist.recv(x)
        elif wait == "async":
            work = dist.all_reduce(x, async_op=True)
            try:
                work.wait()
            finally:
                assert not work.is_success() and isinstance(work.exception(), manta.PeerLost)
        elif wait == "group":
            dist.all_reduce(x, group=pair)
        else:
            dist.all_gather_object([None, None], "x")
    except Exception as e:
        note(place, "survivor-0", type=type(e).__name__, text=str(e), pid=os.getpid())
        raise
    raise AssertionError("nobody was lost")


@pytest.mark.parametrize("wait", ["recv", "anybody", "async", "group", "object"])
def test_every_wait_ends(tmp_path: Path, wait: str) -> None:
    with Trainer(TorchConfig(), num_workers=(2, 2), max_retries=1, quiet=True) as trainer:
        pids = trainer.run(lambda: wait_and_see(str(tmp_path), wait))
    survivor, = noted(tmp_path, "survivor-0")
    assert survivor["type"] == "PeerLost" and "rank 1" in survivor["text"]
    assert pids[0] != survivor["pid"] and noted(tmp_path, "death")


def test_an_exception_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Rank 1 raises with an operation in flight that the other never makes."""
    def train() -> None:
        import torch
        import torch.distributed as dist
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(5), async_op=True)
            raise KeyError("mine")
        dist.recv(torch.ones(5), 1)
    with Trainer(TorchConfig(), num_workers=(2, 2), max_retries=0, quiet=True) as trainer:
        with pytest.raises(KeyError, match="mine"):
            trainer.run(train)
        assert trainer.run(lambda: 5) == [5, 5]


def test_a_deadline(tmp_path: Path) -> None:
    def train() -> str:
        import torch
        import torch.distributed as dist
        text = ""
        if dist.get_rank() == 0:
            try:
                dist.all_reduce(torch.ones(5))
            except TimeoutError as e:
                text = str(e)
            Path(tmp_path, "over").touch()
        while not Path(tmp_path, "over").exists():
            time.sleep(0.01)
        return text
    with Trainer(TorchConfig(timeout_s=0.3), num_workers=(2, 2), max_retries=0,
                 quiet=True) as trainer:
        assert "rank 1 of 2 is missing" in trainer.run(train)[0]


def test_kills_leave_nothing_behind(tmp_path: Path) -> None:
    """Neither names in shared memory nor files nor ports."""
    before = set(os.listdir("/dev/shm"))
    with Trainer(TorchConfig(), num_workers=(2, 2), max_retries=1, quiet=True) as trainer:
        trainer.run(lambda: train_and_die(str(tmp_path)))
    new = [n for n in set(os.listdir("/dev/shm")) - before if "manta" in n]
    assert not new

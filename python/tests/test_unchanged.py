# SPDX-License-Identifier: Apache-2.0
"""Code that knows nothing of manta, inside of a train function: what a launcher would have started,
and the libraries that people use on top of torch."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset  # noqa: E402

from manta.sgd import Trainer  # noqa: E402


@pytest.fixture(scope="module")
def two() -> Iterator[Trainer]:
    with Trainer(backend="torch", num_workers=2, quiet=True) as trainer:
        yield trainer


@pytest.fixture(scope="module")
def two_gloo() -> Iterator[Trainer]:
    from manta.sgd import TorchConfig
    with Trainer(TorchConfig(backend="gloo"), num_workers=2, quiet=True) as trainer:
        yield trainer


def line(n: int) -> TensorDataset:
    """Points of y = 2x."""
    x = torch.linspace(-1, 1, n).reshape(n, 1)
    return TensorDataset(x, 2 * x)


def same(weights: list[Any]) -> bool:
    return all(torch.equal(w, weights[0]) for w in weights)


# --- a script for a launcher ----------------------------------------------------------------------


def script() -> Any:
    """The shape of torch's own tutorial, line for line as torchrun takes it."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dataset = line(64)
    sampler = DistributedSampler(dataset, shuffle=True, seed=1)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    return model.module.weight.detach()


def test_a_script_for_torchrun(two_gloo: Trainer) -> None:
    for _ in range(2):  # it destroys its process group, and the next run has one again
        weights = two_gloo.run(script)
        assert same(weights) and abs(weights[0].item() - 2) < 0.05


def test_init_process_group_without_arguments(two: Trainer) -> None:
    def main() -> float:
        import torch.distributed as dist
        dist.init_process_group()
        x = torch.ones(3) * (dist.get_rank() + 1)
        dist.all_reduce(x)
        return x.sum().item()

    assert two.run(main) == [9.0, 9.0]


def test_the_environment_is_that_of_torchrun(two: Trainer) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
    found = two.run(lambda: [os.environ[n] for n in names]
                    + [bool(os.environ["MASTER_ADDR"]), os.environ["MASTER_PORT"].isdigit()])
    assert found == [[str(r), str(r), "2", "2", True, True] for r in range(2)]


def test_a_model_may_be_returned_in_its_wrapper(two: Trainer) -> None:
    def main() -> Any:
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        return {"model": model, "also": [model]}

    for result in two.run(main):
        assert type(result["model"]) is torch.nn.Linear and result["also"][0] is result["model"]


def test_ranks_that_are_not_seeded_draw_different_numbers(two: Trainer) -> None:
    def draw() -> Any:
        import numpy
        return torch.rand(1).item(), numpy.random.rand(), random.random()

    one, other = two.run(draw)
    assert all(a != b for a, b in zip(one, other)), (one, other)


# --- data -----------------------------------------------------------------------------------------


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[int, int]:
        return i * i, os.getpid()


def test_a_data_loader_has_processes_of_its_own(two: Trainer) -> None:
    def read() -> tuple[list[int], set[int]]:
        loader = DataLoader(Squares(), batch_size=4, num_workers=2)
        values, pids = zip(*loader)
        return torch.cat(values).tolist(), set(torch.cat(pids).tolist())

    (one, by_one), (other, by_other) = two.run(read)
    assert one == other == [i * i for i in range(40)]
    assert len(by_one | by_other) == 4 and os.getpid() not in by_one


# --- libraries ------------------------------------------------------------------------------------


def test_accelerate(two: Trainer) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")

    def main() -> Any:
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        loader = DataLoader(line(64), batch_size=8, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for _ in range(20):
            for x, y in loader:
                optimizer.zero_grad()
                accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
                optimizer.step()
        seen = accelerator.gather(torch.tensor([accelerator.process_index]))
        return (accelerator.num_processes, len(loader), seen.tolist(),
                accelerator.unwrap_model(model).weight.detach())

    found = two.run(main)
    assert [f[:3] for f in found] == [(2, 4, [0, 1])] * 2
    assert same([f[3] for f in found]) and abs(found[0][3].item() - 2) < 0.05


def test_torchmetrics(two: Trainer) -> None:
    """Each rank has half; the metric is that of all."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

    def main() -> float:
        import torch.distributed as dist
        from torchmetrics.classification import BinaryAccuracy
        metric = BinaryAccuracy()
        right = dist.get_rank() == 0  # rank 0 has all right, rank 1 one of four
        metric.update(torch.tensor([1, 1, 1, 1] if right else [1, 0, 0, 0]), torch.ones(4))
        return metric.compute().item()

    assert two.run(main) == [0.625, 0.625]


def test_lightning(two: Trainer, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")

    def main(config: dict[str, str]) -> Any:
        import lightning

        class Line(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, i: int) -> Any:
                x, y = batch
                return torch.nn.functional.mse_loss(self.layer(x), y)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.2)

        model = Line()
        trainer = lightning.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", max_epochs=20, logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            default_root_dir=config["dir"])
        trainer.fit(model, DataLoader(line(64), batch_size=8, shuffle=True))
        return trainer.world_size, trainer.global_step, model.layer.weight.detach()

    found = two.run(main, config={"dir": str(tmp_path)})
    assert [f[:2] for f in found] == [(2, 80)] * 2
    assert same([f[2] for f in found]) and abs(found[0][2].item() - 2) < 0.05

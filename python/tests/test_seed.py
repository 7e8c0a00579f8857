# SPDX-License-Identifier: Apache-2.0
"""enable_reproducibility, and the state of random numbers in checkpoints."""

from __future__ import annotations

import os
import pickle
import random
import signal
from pathlib import Path
from typing import Any, Iterator

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from manta import sgd
from manta._frameworks.torch import device as _device
from manta._frameworks.torch import registry


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    registry.clear()
    registry.current().keeps = True  # as in a run; clear() then undoes what was set
    yield
    registry.clear()


def draw() -> list[float]:
    return [torch.rand(1).item(), float(numpy.random.rand()), random.random()]


class Noise(Dataset[Any]):
    """Augmented by every source of random numbers."""

    def __getitem__(self, i: int) -> Any:
        return torch.tensor([float(i), *draw()])

    def __len__(self) -> int:
        return 8


# --- one process ----------------------------------------------------------------------------------


def test_a_seed_gives_the_same_numbers() -> None:
    def with_seed(*seed: int) -> list[float]:
        sgd.enable_reproducibility(*seed)
        return draw()

    assert with_seed(1) == with_seed(1)
    assert with_seed() == with_seed(0) != with_seed(1)
    assert len(set(with_seed(2**40))) == 3


def test_only_deterministic_algorithms_until_the_run_ends() -> None:
    before = torch.backends.cudnn.benchmark
    sgd.enable_reproducibility()
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    sgd.enable_reproducibility()
    registry.clear()
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize("processes", [0, 2])
def test_a_loader_gives_the_same_samples(processes: int) -> None:
    def read() -> list[torch.Tensor]:
        sgd.enable_reproducibility(3)
        plain = DataLoader(Noise(), batch_size=2, shuffle=True, num_workers=processes)
        loader = sgd.prepare_data_loader(plain)
        return [batch for _ in range(2) for batch in loader]

    first, second = read(), read()
    assert all(map(torch.equal, first, second))
    augmented = torch.cat(first)[:, 1:].flatten()
    assert len(augmented.unique()) == len(augmented)  # no process repeats another


def test_the_order_of_samples_is_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "world", lambda: (0, 2))

    def order(seed: int) -> list[float]:
        sgd.enable_reproducibility(seed)
        loader = sgd.prepare_data_loader(DataLoader(Noise(), batch_size=8, shuffle=True))
        return [value for batch in loader for value in batch[:, 0].tolist()]

    assert order(1) == order(1) and len({tuple(order(seed)) for seed in range(5)}) > 1


def test_a_state_goes_on_where_it_was() -> None:
    draw()
    state = pickle.loads(pickle.dumps(sgd.rng_state()))
    after = draw()
    draw()
    sgd.set_rng_state(state)
    assert draw() == after


@pytest.mark.parametrize("order", ["state first", "loader first"])
def test_a_state_knows_the_pass(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr(_device, "world", lambda: (1, 2))

    def make() -> Any:
        return sgd.prepare_data_loader(DataLoader(
            Noise(), batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(4)))

    first = make()
    list(first), list(first)
    state = sgd.rng_state()
    after = list(first)
    registry.clear()
    registry.current().keeps = True
    if order == "state first":
        sgd.set_rng_state(state)
        second = make()
        torch.set_rng_state(state["torch"])  # whatever was drawn since
        random.setstate(state["random"])
        numpy.random.set_state(state["numpy"])
    else:
        second = make()
        sgd.set_rng_state(state)
    assert all(map(torch.equal, after, second))


# --- two workers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trainer() -> Iterator[sgd.Trainer]:
    with sgd.Trainer(backend="torch", num_workers=2, quiet=True) as t:
        yield t


def train(config: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Dropout, shuffling and augmentation by processes of a loader; saves after every pass."""
    sgd.enable_reproducibility(config["seed"])
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(), torch.nn.Linear(16, 1))
    model = sgd.prepare_model(net)
    optimizer = sgd.prepare_optimizer(torch.optim.Adam(model.parameters(), lr=0.01))
    loader = sgd.prepare_data_loader(DataLoader(Noise(), 2, shuffle=True, num_workers=1))
    file, first, losses = Path(config["file"]), 0, []
    if file.exists():
        saved = torch.load(file, weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sgd.set_rng_state(saved["random"])
        first = saved["epoch"] + 1
    for epoch in range(first, 4):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            sgd.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        torch.distributed.barrier()  # a rank that dies now has been part of this pass
        if sgd.world_rank() == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(),
                        "random": sgd.rng_state(), "epoch": epoch}, str(file) + "~")
            os.replace(str(file) + "~", file)
        torch.distributed.barrier()
        if config["kill"] and epoch == 1 and first == 0 and sgd.world_rank() == 1:
            Path(config["kill"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return [v for p in net.parameters() for v in p.flatten().tolist()], losses[-4:]


@pytest.mark.deadline(120)
def test_the_same_bits_again_also_after_a_loss(trainer: sgd.Trainer, tmp_path: Path) -> None:
    def run(name: str, kill: bool = False, seed: int = 1) -> list[Any]:
        killed = str(tmp_path / "killed") if kill else ""
        return trainer.run(train, {"file": str(tmp_path / name), "kill": killed, "seed": seed})

    zero, one = run("a")
    assert zero[0] == one[0] and zero[1] != one[1]  # one model, data of their own
    assert run("b") == [zero, one]
    assert run("c", seed=2) != [zero, one]
    assert run("d", kill=True) == [zero, one]
    assert (tmp_path / "killed").exists()


# --- a GPU ----------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_state_has_the_gpu_s_numbers() -> None:
    sgd.enable_reproducibility(1)
    device = sgd.get_device()
    torch.rand(3, device=device)
    state = pickle.loads(pickle.dumps(sgd.rng_state()))
    after = torch.rand(3, device=device)
    torch.rand(3, device=device)
    sgd.set_rng_state(state)
    assert torch.equal(torch.rand(3, device=device), after)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits_again() -> None:
    def bits() -> torch.Tensor:
        sgd.enable_reproducibility(5)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Dropout(),
                                  torch.nn.Flatten(), torch.nn.Linear(16 * 36, 10))
        model = sgd.prepare_model(net)
        optimizer = sgd.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(5):
            optimizer.zero_grad()
            x = torch.randn(32, 3, 8, 8, device=sgd.get_device())
            sgd.backward(model(x).square().mean())
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(bits(), bits())

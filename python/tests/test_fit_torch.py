# SPDX-License-Identifier: Apache-2.0
"""Generation 3 on PyTorch: TorchTrainer, and what document 004 calls in its train functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import manta.train.torch  # noqa: E402
from manta import train  # noqa: E402
from manta.air import Checkpoint, RunConfig, ScalingConfig, session  # noqa: E402
from manta.train.torch import TorchCheckpoint, TorchConfig, TorchTrainer  # noqa: E402

TWO = ScalingConfig(num_workers=2)


def fit(loop: Any, config: Any = None, **arguments: Any) -> Any:
    return TorchTrainer(loop, train_loop_config=config, scaling_config=TWO,
                        run_config=RunConfig(verbose=0), **arguments).fit()


def test_importing_it_imports_no_torch() -> None:
    code = ("import sys, manta.train.torch, manta.air\n"
            "from manta.air import session\n"
            "from manta.train.torch import TorchTrainer, TorchConfig\n"
            "TorchTrainer(lambda: None)\n"
            "assert {'prepare_model', 'TorchCheckpoint'} <= set(dir(manta.train.torch))\n"
            "print('torch' in sys.modules, 'numpy' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "False False\n", done.stderr


def test_a_process_group_and_its_config() -> None:
    def loop() -> None:
        import torch.distributed as dist
        total = torch.ones(1) * (dist.get_rank() + 1)
        dist.all_reduce(total)
        session.report({"sum": total.item(), "backend": dist.get_backend()})

    for name in ("torch_config", "torch_backend"):
        said = fit(loop, **{name: TorchConfig(backend="gloo")}).metrics
        assert (said["sum"], said["backend"]) == (3, "gloo")
    with pytest.raises(ValueError, match="are the same: give one"):
        TorchTrainer(loop, torch_config=TorchConfig(), torch_backend=TorchConfig())
    with pytest.raises(TypeError, match="must be a TorchConfig, not 'gloo'"):
        TorchTrainer(loop, torch_backend="gloo")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no argument 'torch_confg'\nhint: it is torch_config"):
        TorchTrainer(loop, torch_confg=3)  # type: ignore[call-arg]


def test_mixed_precision_by_three_calls() -> None:
    def loop() -> None:
        train.torch.accelerate(amp=True)
        torch.manual_seed(0)
        model = train.torch.prepare_model(torch.nn.Sequential(torch.nn.Linear(8, 2)))
        inputs = torch.randn(32, 8)
        data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
        loader = train.torch.prepare_data_loader(torch.utils.data.DataLoader(data, batch_size=4))
        optimizer = train.torch.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        kinds = set()
        model.module[0].register_forward_hook(lambda m, x, y: kinds.add(str(y.dtype)))
        losses = []
        for _ in range(3):
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                train.torch.backward(loss)
                optimizer.step()
                losses.append(loss.item())
        session.report({"kinds": sorted(kinds), "batches": len(losses) // 3,
                        "falls": sum(losses[-4:]) < sum(losses[:4])})

    said = fit(loop).metrics
    assert said["kinds"] == ["torch.bfloat16"] and said["batches"] == 4 and said["falls"]


def test_reproducibility() -> None:
    def loop(config: dict[str, Any]) -> None:
        if config["seed"] is not None:
            train.torch.enable_reproducibility(seed=config["seed"])
        session.report({"drawn": torch.rand(3).tolist()})

    def drawn(seed: int | None) -> Any:
        return fit(loop, {"seed": seed}).metrics["drawn"]
    assert drawn(1) == drawn(1) != drawn(None)


def test_metrics_of_torchmetrics_are_of_all_workers() -> None:
    torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

    def loop() -> None:
        rank = session.get_world_rank()
        mean, r2 = torchmetrics.MeanMetric(), torchmetrics.R2Score()
        mean.update(torch.tensor([float(rank)] * (rank + 1)))
        x = torch.arange(4.0) + 4 * rank
        r2.update(x + rank, x)
        session.report({"mean": mean.compute().item(), "r2": r2.compute().item()})

    said = fit(loop).metrics
    assert said["mean"] == pytest.approx(2 / 3)
    x = torch.arange(8.0)
    error = 4 / ((x - x.mean()) ** 2).sum()
    assert said["r2"] == pytest.approx(1 - error.item())


def test_weights_are_saved_unwrapped_and_found_again() -> None:
    def loop() -> None:
        model = torch.nn.Linear(2, 1)
        if found := session.get_checkpoint():
            model = TorchCheckpoint.from_checkpoint(found).get_model(model)
            session.report({"sum": sum(p.sum().item() for p in model.parameters())})
            return
        for p in model.parameters():
            torch.nn.init.constant_(p, 2)
        wrapped = train.torch.prepare_model(model)
        session.report({"type": type(wrapped).__name__},
                       checkpoint=TorchCheckpoint.from_state_dict(wrapped.state_dict()))

    first = fit(loop)
    assert first.metrics["type"] == "DistributedDataParallel"
    assert sorted(first.checkpoint.to_dict()["model"]) == ["bias", "weight"]
    assert fit(loop, resume_from_checkpoint=first.checkpoint).metrics["sum"] == 6


def test_a_directory_with_torch_save() -> None:
    """As programs for Ray 2.x do it, on rank 0 alone."""
    def loop(config: dict[str, Any]) -> None:
        start, model = 0, torch.nn.Linear(1, 1)
        if found := train.get_checkpoint():
            with found.as_directory() as place:
                state = torch.load(os.path.join(place, "model.pt"))
            model.load_state_dict(state["model"])
            start = state["epoch"] + 1
        for epoch in range(start, config["epochs"]):
            if train.get_context().get_world_rank() == 0:
                with tempfile.TemporaryDirectory() as place:
                    torch.save({"epoch": epoch, "model": model.state_dict()},
                               os.path.join(place, "model.pt"))
                    train.report({"epoch": epoch},
                                 checkpoint=train.Checkpoint.from_directory(place))
            else:
                train.report({"epoch": epoch})

    first = fit(loop, {"epochs": 2})
    assert os.listdir(first.checkpoint.path) == ["model.pt"]
    second = fit(loop, {"epochs": 3}, resume_from_checkpoint=first.checkpoint)
    assert [row["epoch"] for row in second.rows] == [2]
    assert (first.checkpoint._number(), second.checkpoint._number()) == (1, 1)  # as of dicts
    assert torch.load(Path(second.checkpoint.path, "model.pt"))["epoch"] == 2


def test_restore_keeps_the_config_of_torch(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        session.report({"backend": torch.distributed.get_backend()},
                       checkpoint=Checkpoint.from_dict({}))
        if config["fails"]:
            raise ValueError

    with pytest.raises(ValueError):
        TorchTrainer(loop, train_loop_config={"fails": True}, scaling_config=TWO,
                     torch_config=TorchConfig(backend="gloo"),
                     run_config=RunConfig("x", storage_path=tmp_path, verbose=0)).fit()
    assert TorchTrainer.can_restore(tmp_path / "x")
    again = TorchTrainer.restore(tmp_path / "x", loop, {"fails": False})
    assert again.fit().metrics["backend"] == "gloo"
    assert re.match(r"TorchTrainer_0001_", next((tmp_path / "x").glob("*/")).name)

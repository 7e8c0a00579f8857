# SPDX-License-Identifier: Apache-2.0
"""The packages that people train with, unchanged inside of a train function: each finds its ranks
and its process group by itself. Models are small and random; nothing is downloaded.

`make check` has the cheap ones of these in test_unchanged.py.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from manta import sgd, train  # noqa: E402
from manta.air import (Checkpoint, FailureConfig, RunConfig, ScalingConfig,  # noqa: E402
                       session)
from manta.sgd import Trainer  # noqa: E402

pytestmark = pytest.mark.deadline(300)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(backend="torch", num_workers=(2, 2), quiet=True,
                 logdir=tmp_path_factory.mktemp("runs")) as trainer:
        yield trainer


def line(n: int) -> TensorDataset:
    """Points of y = 2x."""
    x = torch.linspace(-1, 1, n).reshape(n, 1)
    return TensorDataset(x, 2 * x)


def same(weights: list[Any]) -> bool:
    return all(torch.equal(w, weights[0]) for w in weights)


# --- Accelerate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["test_script", "test_sync", "test_ops"])
def test_accelerate_passes_its_own_tests(two: Trainer, script: str) -> None:
    """What `accelerate test` and its test suite start under a launcher, as far as it can run on
    CPUs: test_distributed_data_loop cannot, under torchrun it hangs."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")

    def main(config: dict[str, str]) -> str:
        import importlib
        os.environ["ACCELERATE_USE_CPU"] = "1"
        importlib.import_module(f"accelerate.test_utils.scripts.{config['script']}").main()
        return "passed"

    assert two.run(main, {"script": script}) == ["passed", "passed"]


# --- Transformers ---------------------------------------------------------------------------------


def tiny_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
                                        num_hidden_layers=2, num_attention_heads=2,
                                        num_key_value_heads=2, max_position_embeddings=32))


class Text(torch.utils.data.Dataset):  # type: ignore[misc]
    """Counting, modulo 64."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> dict[str, Any]:
        tokens = torch.arange(i, i + 16) % 64
        return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


def train_transformers(config: dict[str, Any]) -> Any:
    """Goes on from the newest of its own checkpoints, as its users write it; reports by a callback
    of its own."""
    from transformers import Trainer as HFTrainer
    from transformers import TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    class Report(TrainerCallback):  # type: ignore[misc]
        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sgd.report(epoch=int(state.epoch), step=state.global_step)

    class Die(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if config["die"] and state.epoch == 2 and first == 0 and sgd.world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

    out = config["dir"]
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    args = TrainingArguments(out, num_train_epochs=4, per_device_train_batch_size=8, use_cpu=True,
                             learning_rate=1e-2, save_strategy="epoch", report_to=[],
                             disable_tqdm=True, logging_strategy="no", seed=1)
    trainer = HFTrainer(tiny_model(), args, train_dataset=Text(), callbacks=[Report(), Die()])
    first = int(last.rpartition("-")[2]) if last else 0
    done = trainer.train(resume_from_checkpoint=last)
    loss = trainer.evaluate(Text())["eval_loss"]
    weight = trainer.accelerator.unwrap_model(trainer.model).lm_head.weight.detach()
    return args.world_size, done.global_step, loss < 3.5, weight, first


def test_transformers(two: Trainer, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    calm = two.run(train_transformers, {"dir": str(tmp_path / "calm"), "die": False})
    assert [r[:3] for r in calm] == [(2, 16, True)] * 2 and same([r[3] for r in calm])
    killed = two.run(train_transformers, {"dir": str(tmp_path / "killed"), "die": True})
    assert [r[4] for r in killed] == [8, 8]  # two epochs of four steps
    assert same([r[3] for r in (*calm, *killed)])


def test_a_model_of_transformers_in_pieces(two: Trainer) -> None:
    """It names its blocks; the output of its head is tied or not."""
    pytest.importorskip("transformers", reason="transformers is not installed")

    def main() -> Any:
        from torch.distributed.fsdp import FSDPModule
        model = sgd.prepare_model(tiny_model(), parallel_strategy="fsdp",
                                  parallel_strategy_kwargs={"min_num_params": 0},
                                  activation_checkpointing=True)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        losses = []
        for batch in sgd.prepare_data_loader(DataLoader(Text(), batch_size=8)):
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        units = [n for n, m in model.named_modules() if isinstance(m, FSDPModule)]
        return units, losses[-1] < losses[0]

    assert two.run(main) == [(["", "model.layers.0", "model.layers.1"], True)] * 2


# --- Lightning ------------------------------------------------------------------------------------


def test_fabric(two: Trainer) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")

    def main() -> Any:
        from lightning.fabric import Fabric
        fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        fabric.launch()
        fabric.seed_everything(1)
        model = torch.nn.Linear(1, 1)
        model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.2))
        loader = fabric.setup_dataloaders(DataLoader(line(64), batch_size=8, shuffle=True))
        for _ in range(20):
            for x, y in loader:
                optimizer.zero_grad()
                fabric.backward(torch.nn.functional.mse_loss(model(x), y))
                optimizer.step()
        gathered = fabric.all_gather(torch.tensor([fabric.global_rank])).flatten().tolist()
        return fabric.world_size, len(loader), gathered, model.weight.detach()

    found = two.run(main)
    assert [f[:3] for f in found] == [(2, 4, [0, 1])] * 2
    assert same([f[3] for f in found]) and abs(found[0][3].item() - 2) < 0.05


def train_lightning(config: dict[str, Any]) -> Any:
    import lightning
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
    from torchmetrics import MeanSquaredError

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.error = MeanSquaredError()

        def training_step(self, batch: Any, i: int) -> Any:
            x, y = batch
            return torch.nn.functional.mse_loss(self.layer(x), y)

        def validation_step(self, batch: Any, i: int) -> None:
            x, y = batch
            self.error(self.layer(x), y)
            self.log("error", self.error, on_epoch=True)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.1)

    class Report(Callback):  # type: ignore[misc]
        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
            if not trainer.sanity_checking:
                sgd.report(epoch=trainer.current_epoch)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            if config["die"] and trainer.current_epoch == 3 and not last and (
                    trainer.global_rank == 1):
                os.kill(os.getpid(), signal.SIGKILL)

    path = Path(config["dir"]) / "last.ckpt"
    last = str(path) if path.exists() else None
    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=5, logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=config["dir"],
        num_sanity_val_steps=0,
        callbacks=[Report(), ModelCheckpoint(config["dir"], save_last=True)])
    model = Line()
    trainer.fit(model, DataLoader(line(64), batch_size=8), DataLoader(line(32), batch_size=8),
                ckpt_path=last)
    return (trainer.global_step, trainer.callback_metrics["error"].item(),
            model.layer.weight.detach(), bool(last))


def test_lightning_goes_on_from_its_own_checkpoint(two: Trainer, tmp_path: Path) -> None:
    """A metric over all ranks, a kill, and the same weights in the end."""
    pytest.importorskip("lightning", reason="lightning is not installed")
    calm = two.run(train_lightning, {"dir": str(tmp_path / "calm"), "die": False})
    assert [r[0] for r in calm] == [20, 20] and calm[0][1] == calm[1][1]
    killed = two.run(train_lightning, {"dir": str(tmp_path / "killed"), "die": True})
    assert [r[3] for r in killed] == [True, True]
    assert same([r[2] for r in (*calm, *killed)])


# --- TorchMetrics ---------------------------------------------------------------------------------


def test_metrics_of_all_kinds_are_those_of_all_ranks(two: Trainer) -> None:
    """Sums, lists of unequal lengths, collections, and a state in a checkpoint."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

    def main() -> Any:
        import torchmetrics
        from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy
        rank = sgd.world_rank()
        classes = torchmetrics.MetricCollection({
            "mean": MulticlassAccuracy(3), "micro": MulticlassAccuracy(3, average="micro")})
        auroc, cat = BinaryAUROC(), torchmetrics.CatMetric()
        torch.manual_seed(rank)
        n = 5 + 3 * rank
        scores, labels = torch.rand(n), (torch.arange(n) % 2)
        auroc.update(scores, labels)
        cat.update(scores)
        classes.update(torch.arange(n) % 3, torch.zeros(n, dtype=torch.int64))
        every = [s.tolist() for s in (scores, labels)]
        return auroc.compute().item(), sorted(cat.compute().tolist()), {
            k: v.item() for k, v in classes.compute().items()}, every

    got = two.run(main)
    assert got[0][:3] == got[1][:3]
    from torchmetrics.functional.classification import binary_auroc
    scores, labels = (torch.tensor(got[0][3][i] + got[1][3][i]) for i in range(2))
    assert abs(got[0][0] - binary_auroc(scores, labels).item()) < 1e-6
    assert got[0][1] == sorted(scores.tolist()) and got[0][2]["micro"] == pytest.approx(5 / 13)


# --- torch's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [True, False])
def test_distributed_checkpoint(two: Trainer, tmp_path: Path, wait: bool) -> None:
    """torch.distributed.checkpoint beside manta's own: saved by two, loaded by three."""
    def make() -> Any:
        from torch.distributed.fsdp import fully_shard
        torch.manual_seed(sgd.world_size())
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 1))
        fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        model(torch.ones(2, 5)).sum().backward()
        optimizer.step()
        return model, optimizer

    def states(model: Any, optimizer: Any) -> Any:
        from torch.distributed.checkpoint.state_dict import get_state_dict
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    def whole(model: Any) -> Any:
        return {k: v.full_tensor() for k, v in model.state_dict().items()}

    def save(config: dict[str, Any]) -> Any:
        import torch.distributed.checkpoint as dcp
        model, optimizer = make()
        if config["wait"]:
            dcp.save(states(model, optimizer), checkpoint_id=config["dir"])
        else:
            dcp.async_save(states(model, optimizer), checkpoint_id=config["dir"]).result()
        return whole(model)

    def load(config: dict[str, Any]) -> Any:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict
        model, optimizer = make()
        state = states(model, optimizer)
        dcp.load(state, checkpoint_id=config["dir"])
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        return whole(model)

    config = {"dir": str(tmp_path / "dcp"), "wait": wait}
    saved = two.run(save, config)[0]
    with Trainer(backend="torch", num_workers=(3, 3), quiet=True, logdir=tmp_path) as three:
        for got in three.run(load, config):
            assert list(got) == list(saved) and all(got[k].equal(saved[k]) for k in saved)


def fit_in_directories(config: dict[str, Any]) -> None:
    """Each rank reports the files that it has of a directory of torch.distributed.checkpoint."""
    import tempfile

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    from manta.train.torch import prepare_model
    model = prepare_model(torch.nn.Linear(5, 3), parallel_strategy="fsdp")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def state() -> dict[str, Any]:
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    first = 0
    if found := session.get_checkpoint():
        loaded = {**state(), "step": 0}
        with found.as_directory() as path:
            dcp.load(loaded, checkpoint_id=path)
        set_state_dict(model, optimizer, model_state_dict=loaded["model"],
                       optim_state_dict=loaded["optimizer"])
        first = loaded["step"] + 1
    for step in range(first, 6):
        optimizer.zero_grad()
        model(torch.ones(2, 5)).square().mean().backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as path:
            dcp.save({**state(), "step": step}, checkpoint_id=path)
            session.report({"first": first, "step": step},
                           checkpoint=Checkpoint.from_directory(path))
        if step == 3 and first == 0 and session.get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_directories_of_distributed_checkpoint_in_generation_3(tmp_path: Path) -> None:
    result = train.torch.TorchTrainer(
        fit_in_directories, train_loop_config={}, scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), verbose=0,
                             failure_config=FailureConfig(max_failures=2))).fit()
    assert result.error is None and result.metrics["step"] == 5 and result.metrics["first"] > 0


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", None])
def test_compiled_models(two: Trainer, strategy: str | None) -> None:
    """torch.compile before and after prepare_model: the same losses as without it."""
    if not _has_compiler():
        pytest.skip("torch.compile needs a C++ compiler")

    def main(config: dict[str, Any]) -> Any:
        torch.manual_seed(0)
        rows = torch.randn(16, 4)
        x = rows.chunk(2)[sgd.world_rank()]

        def train(order: str) -> list[float]:
            torch.manual_seed(0)
            model: Any = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(),
                                             torch.nn.Linear(8, 1))
            if order == "before":
                model = torch.compile(model)
            model = sgd.prepare_model(model, parallel_strategy=config["strategy"])
            if order == "after":
                model = torch.compile(model)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            losses = []
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses

        return train("plain"), train("before"), train("after")

    for plain, before, after in two.run(main, {"strategy": strategy}):
        assert before == pytest.approx(plain, rel=1e-5) and after == pytest.approx(plain, rel=1e-5)


def _has_compiler() -> bool:
    import shutil
    return shutil.which(os.environ.get("CXX", "g++")) is not None

# SPDX-License-Identifier: Apache-2.0
"""Trainers of operators: passes on workers, their metrics, what was trained."""

from __future__ import annotations

import importlib.util
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from operators import (Line, data_creator, line, model_creator, optimizer_creator)  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from manta._operator.statistics import reduced  # noqa: E402
from manta.util.sgd import (PyTorchTrainer, TFTrainer, TorchTrainer,  # noqa: E402
                            TrainingOperator)
from manta.util.sgd.utils import BATCH_SIZE  # noqa: E402


class Told(Line):
    """Returns what it was given, too."""

    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)
        self.model, self.optimizer, self.scheduler = self.register(
            models=self._get_original_models()[0], optimizers=self.optimizer, schedulers=schedule,
            ddp_args={"find_unused_parameters": True})

    def train_epoch(self, iterator: Any, info: Any = None, **more: Any) -> dict[str, Any]:
        found = super().train_epoch(iterator, info, **more)
        return {**found, "rank": self.world_rank, "said": (info or {}).get("said")}


@pytest.fixture(scope="module")
def trainer() -> Iterator[TorchTrainer]:
    made = TorchTrainer(training_operator_cls=Told, num_workers=2, scheduler_step_freq="manual",
                        config={"batch_size": 4})
    yield made
    made.shutdown()


@pytest.fixture()
def state(trainer: TorchTrainer) -> Iterator[dict[str, Any]]:
    """As it was at the beginning, before and after."""
    before = trainer.state_dict()
    yield before
    trainer.load_state_dict(before)


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_of_all_workers_in_one() -> None:
    stats = [{"num_samples": 3, "loss": 1.0, "epoch": 2, "name": "a", "nan": math.nan},
             {"num_samples": 5, "loss": 2.0, "epoch": 2, "name": "b", "nan": 7.0, "more": 1}]
    assert reduced(stats) == {"num_samples": 8, "loss": 1.5, "epoch": 2, "name": "a", "nan": 7.0}
    assert type(reduced(stats)["epoch"]) is int
    assert math.isnan(reduced([{"a": math.nan}])["a"])
    assert math.isnan(reduced([{"loss": 1.0}])["num_samples"])


def test_a_pass_on_two_workers(trainer: TorchTrainer, state: dict[str, Any]) -> None:
    """Each has its half; the gradients are those of both."""
    stats = trainer.train(info={"said": "hello"})
    assert {k: stats[k] for k in ("num_samples", "batch_count", "epoch", "rank", "said")} == {
        "num_samples": 32, "batch_count": 4, "epoch": 1, "rank": 0.5, "said": "hello"}
    both = trainer.train(reduce_results=False)
    assert [s["rank"] for s in both] == [0, 1] and [s["num_samples"] for s in both] == [16, 16]
    assert both[0]["train_loss"] != both[1]["train_loss"]
    models = trainer.apply_all_operators(lambda op: op._get_original_models()[0].weight.tolist())
    assert models[0] == models[1]
    assert trainer.num_workers == 2


def test_two_workers_train_as_one_with_both_batches(trainer: TorchTrainer,
                                                    state: dict[str, Any]) -> None:
    trainer.train()
    model, rows = model_creator({}), line()
    optimizer = optimizer_creator(model, {})
    for step in range(4):
        at = [8 * step + 2 * i + rank for rank in range(2) for i in range(4)]
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(rows[at][0]), rows[at][1]).backward()
        optimizer.step()
    trained = trainer.get_model()
    assert type(trained) is torch.nn.Linear
    assert trained.weight.item() == pytest.approx(model.weight.item(), abs=1e-6)


def test_some_steps_and_the_rest(trainer: TorchTrainer, state: dict[str, Any]) -> None:
    assert [trainer.train(num_steps=n)["batch_count"] for n in (3, None, 6)] == [3, 1, 6]
    assert trainer.train(num_steps=1)["epoch"] == 3
    assert [trainer.validate(num_steps=n)["batch_count"] for n in (1, None)] == [1, 1]


def test_validation_and_profiles(trainer: TorchTrainer, state: dict[str, Any]) -> None:
    found = trainer.validate(profile=True)
    assert found["num_samples"] == 16 and found["val_loss"] > 0
    assert {"mean_validation_s", "mean_eval_fwd_s"} <= set(found["profile"])
    assert "profile" not in trainer.validate()
    assert {"mean_train_epoch_s", "mean_fwd_s", "mean_grad_s", "mean_apply_s"} <= set(
        trainer.train(profile=True)["profile"])
    assert len(trainer.validate(reduce_results=False)) == 2


def test_a_dataset_in_the_place_of_the_loader(trainer: TorchTrainer,
                                              state: dict[str, Any]) -> None:
    class Shards:
        def get_shard(self, rank: int) -> Any:
            return [(torch.ones(2 + rank, 1), torch.ones(2 + rank, 1))] * 3

    assert trainer.train(dataset=Shards())["num_samples"] == 15
    assert trainer.train(dataset=Shards(), num_steps=1)["num_samples"] == 5
    with pytest.raises(TypeError, match="get_shard"):
        trainer.train(dataset=[1])


# --- operators and workers ------------------------------------------------------------------------


def test_functions_on_workers_and_operators(trainer: TorchTrainer) -> None:
    pids = trainer.apply_all_workers(os.getpid)
    assert len(set(pids)) == 2 and os.getpid() not in pids
    seen = trainer.apply_all_operators(
        lambda op: (op.world_rank, op.local_rank, op.use_gpu, op.device_ids, op.config,
                    op.model.find_unused_parameters, op.scheduler_step_freq))
    assert seen == [(r, r, False, None, {"batch_size": 4}, True, "manual") for r in range(2)]
    trainer.update_scheduler(0.5)
    trainer.update_scheduler(metric=0.5)
    assert trainer.apply_all_operators(lambda op: op.scheduler.last_epoch) == [2, 2]
    with pytest.raises(RuntimeError, match="apply_all_operators"):
        trainer.get_local_operator()


def test_an_exception_is_the_users_own(trainer: TorchTrainer, state: dict[str, Any]) -> None:
    """It is not retried, and the trainer goes on."""
    def fail(op: Any) -> None:
        raise LookupError("of the operator")

    with pytest.raises(LookupError, match="of the operator"):
        trainer.apply_all_operators(fail)
    assert trainer.train()["batch_count"] == 4
    assert trainer._instances.failures == 0


# --- checkpoints ----------------------------------------------------------------------------------


def test_save_and_load(trainer: TorchTrainer, state: dict[str, Any], tmp_path: Path) -> None:
    trainer.train()
    path = trainer.save(tmp_path / "saved")
    after = trainer.get_model().weight.item()
    assert torch.load(path, weights_only=True)["models"][0]["weight"].item() == after
    trainer.load_state_dict(state)
    assert trainer.get_model().weight.item() != after and trainer.state_dict()["epoch"] == 0
    trainer.load(path)
    assert trainer.get_model().weight.item() == after and trainer.train()["epoch"] == 2
    files = []
    for _ in range(2):
        trainer.train()
        files.append(trainer.save_checkpoint(checkpoint_dir=tmp_path / "all"))
    assert [Path(f).name for f in files] == ["checkpoint_000003.pt", "checkpoint_000004.pt"]
    trainer.restore(tmp_path / "all")
    assert trainer.train()["epoch"] == 5
    with pytest.raises(FileNotFoundError):
        trainer.load(tmp_path)


class Evil:
    def __reduce__(self) -> Any:
        return print, ("loaded",)


def test_a_checkpoint_from_elsewhere_runs_no_code(trainer: TorchTrainer, state: dict[str, Any],
                                                  tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({**state, "operator": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(PermissionError, match="trust=True"):
        trainer.load(tmp_path / "evil.pt")
    assert "loaded" not in capsys.readouterr().out
    trainer.load(tmp_path / "evil.pt", trust=True)
    assert "loaded" in capsys.readouterr().out


# --- how it is made -------------------------------------------------------------------------------


def test_in_this_process() -> None:
    hooked: list[int] = []
    local = TorchTrainer(training_operator_cls=Line, use_local=True, use_gpu=False,
                         initialization_hook=lambda: hooked.append(1))
    assert hooked == [1] and local.train()["num_samples"] == 32 and local.num_workers == 1
    operator = local.get_local_operator()
    assert operator.global_step == 8 and type(operator.model) is torch.nn.Linear
    assert local.apply_all_workers(os.getpid) == [os.getpid()]
    assert local.get_model().weight.item() == operator.model.weight.item()
    local.load_state_dict(local.state_dict())
    local.shutdown()
    local.shutdown()
    for call in (local.train, local.validate, local.get_model, lambda: local.num_workers):
        with pytest.raises(RuntimeError, match="was shut down"):
            call()


def _hook() -> None:
    """What it does to the environment holds in every later call."""
    os.environ["OF_THE_HOOK"] = "called"
    del os.environ["HOME"]


def test_a_batch_size_of_all_workers_is_divided() -> None:
    def loader(config: Any) -> Any:
        return DataLoader(line(), batch_size=config[BATCH_SIZE])

    operator = TrainingOperator.from_creators(model_creator, optimizer_creator, loader,
                                              torch.nn.MSELoss)
    trainer = TorchTrainer(training_operator_cls=operator, num_workers=2, config={BATCH_SIZE: 9},
                           initialization_hook=_hook,
                           add_dist_sampler=False, wrap_ddp=False, backend="gloo")
    assert trainer.config[BATCH_SIZE] == 8
    assert trainer.train()["batch_count"] == 8  # of 4 rows, all of them on both
    seen = trainer.apply_all_operators(
        lambda op: (os.environ.get("OF_THE_HOOK"), "HOME" in os.environ, type(op.model).__name__))
    assert seen == [("called", False, "Linear")] * 2
    with pytest.raises(RuntimeError, match="validation_loader"):
        trainer.validate()
    trainer.shutdown()


def test_the_oldest_trainer_takes_functions_and_datasets() -> None:
    class Loud(TrainingOperator):
        def setup(self, config: Any) -> None:
            self.ready = self.model is not None

        def train_batch(self, batch: Any, batch_info: Any = None) -> dict[str, Any]:
            return {**super().train_batch(batch, batch_info), "ready": self.ready}

    trainer = PyTorchTrainer(model_creator, lambda config: (line(), line(16)), optimizer_creator,
                             torch.nn.MSELoss, num_replicas=1, batch_size=16,
                             training_operator_cls=Loud,
                             scheduler_creator=lambda o, config: torch.optim.lr_scheduler.StepLR(
                                 o, 100))
    stats = trainer.train()
    assert stats["batch_count"] == 2 and stats["ready"] == 1
    assert stats["mean_train_loss"] == stats["train_loss"]
    found = trainer.validate(reduce_results=False)[0]
    assert found["validation_loss"] == found["mean_val_loss"] == found["val_loss"]
    assert found["mean_accuracy"] == found["val_accuracy"]
    assert trainer.apply_all_operators(lambda op: op.scheduler.last_epoch) == [2]
    trainer.shutdown()


def test_functions_in_the_place_of_an_operator_class() -> None:
    trainer = TorchTrainer(model_creator=model_creator, data_creator=data_creator,
                           optimizer_creator=optimizer_creator, loss_creator=torch.nn.MSELoss,
                           use_local=True, use_gpu=False)
    assert trainer.train()["batch_count"] == 8


def test_a_framework_that_is_not_there() -> None:
    if importlib.util.find_spec("tensorflow"):
        pytest.skip("tensorflow is installed: see with_tensorflow/test_operator.py")
    with pytest.raises(ModuleNotFoundError, match="pip install tensorflow"):
        TFTrainer(model_creator, data_creator)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="subclass of TrainingOperator"):
        TorchTrainer(training_operator_cls=dict)
    with pytest.raises(ValueError, match="scheduler_step_freq must be"):
        TorchTrainer(training_operator_cls=Line, scheduler_step_freq="day")
    with pytest.raises(ValueError, match="num_workers must be"):
        TorchTrainer(training_operator_cls=Line, num_workers=0)
    with pytest.raises(TypeError, match="num_workers"):
        TorchTrainer(training_operator_cls=Line, workers_num=2)
    local = TorchTrainer(training_operator_cls=Line, use_local=True, use_gpu=False)
    with pytest.raises(ValueError, match="max_retries"):
        local.train(max_retries=-1)
    with pytest.raises(TypeError, match="num_steps"):
        local.train(steps_num=2)


# --- GPUs -----------------------------------------------------------------------------------------


class OnGpu(Line):
    def setup(self, config: dict[str, Any]) -> None:
        super().setup(config)
        self.model.register_forward_hook(self._look)

    def _look(self, module: Any, given: Any, output: Any) -> None:
        self.seen = (output.device.type, output.dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("half", [False, True])
def test_an_operator_on_a_gpu(half: bool, tmp_path: Path) -> None:
    """Batches come there by themselves; the state goes on from one trainer to the next; the model
    and the state are in host memory here."""
    trainer = TorchTrainer(training_operator_cls=OnGpu, use_fp16=half)  # use_gpu="auto"
    first = trainer.train()
    kind, dtype, fp16, scale = trainer.apply_all_operators(
        lambda op: (*op.seen, op.use_fp16_native, op._amp_scaler.get_scale()))[0]
    assert (kind, dtype) == ("cuda", torch.float16 if half else torch.float32)
    assert fp16 is half and (scale > 1) is half
    assert trainer.get_model().weight.device.type == "cpu"
    pid = trainer.apply_all_workers(os.getpid)[0]
    os.kill(pid, signal.SIGKILL)
    second = trainer.train(max_retries=1)
    assert second["epoch"] == 2 and second["train_loss"] < first["train_loss"]
    path = trainer.save(tmp_path / "saved")
    state = torch.load(path, map_location="cpu", weights_only=True)
    assert ("amp_native" in state) is half
    other = TorchTrainer(training_operator_cls=OnGpu, use_fp16=half, use_gpu=False)
    other.load(path)
    assert other.train()["epoch"] == 3
    trainer.shutdown()
    other.shutdown()

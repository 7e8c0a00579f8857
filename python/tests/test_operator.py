# SPDX-License-Identifier: Apache-2.0
"""Operators in plain code, and the classes that are made of functions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from operators import Line, data_creator, line, model_creator, optimizer_creator  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from manta._frameworks.torch.operator.feed import Feed  # noqa: E402
from manta._frameworks.torch.operator.runner import Runner  # noqa: E402
from manta.util.sgd import CreatorOperator, TrainingOperator  # noqa: E402
from manta.util.sgd.torch.constants import NUM_STEPS, SCHEDULER_STEP  # noqa: E402

OPTIONS = {"use_gpu": False, "use_fp16": False, "use_tqdm": False, "wrap_ddp": True,
           "add_dist_sampler": True, "scheduler_step_freq": None}


def run(operator_cls: Any, config: Any = None, **options: Any) -> Runner:
    return Runner(operator_cls, config or {}, {**OPTIONS, **options})


# --- the loops ------------------------------------------------------------------------------------


def test_a_pass_gives_averages_of_its_batches() -> None:
    operator = Line({"batch_size": 8})
    stats = operator.train_epoch(iter(operator._get_train_loader()))
    assert {k: stats[k] for k in ("batch_count", "num_samples")} == {"batch_count": 4,
                                                                     "num_samples": 32}
    assert stats["train_loss"] > 0 < stats["last_train_loss"]
    assert operator.global_step == 4
    found = operator.validate(iterator=iter(operator._get_validation_loader()))
    assert sorted(found) == ["batch_count", "last_val_accuracy", "last_val_loss", "num_samples",
                             "val_accuracy", "val_loss"]
    assert not operator.model.training and found["num_samples"] == 16


def test_a_pass_is_what_a_loop_by_hand_is() -> None:
    operator = Line({})
    stats = operator.train_epoch(iter(operator._get_train_loader()))
    model = model_creator({})
    optimizer = optimizer_creator(model, {})
    losses = []
    for x, y in DataLoader(line(), batch_size=4):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert stats["train_loss"] == pytest.approx(sum(losses) / 8, rel=1e-9)
    assert stats["last_train_loss"] == losses[-1]
    assert operator.model.weight.tolist() == model.weight.tolist()


def test_loops_that_need_what_was_not_set_say_so() -> None:
    class Bare(TrainingOperator):
        def setup(self, config: Any) -> None:
            pass

    operator = Bare({})
    for call in (lambda: operator.train_epoch(iter([])), lambda: operator.validate(iter([])),
                 lambda: operator.train_batch(()), lambda: operator.validate_batch(())):
        with pytest.raises(RuntimeError, match=r"self\.model, which Bare\.setup"):
            call()
    for name in ("original_models", "optimizers", "train_loader", "validation_loader", "criterion"):
        with pytest.raises(RuntimeError, match=r"self\.register"):
            getattr(operator, f"_get_{name}")()
    assert operator._get_schedulers() == [] and operator.get_data_loaders() == (None, None)
    with pytest.raises(NotImplementedError, match="has no setup"):
        TrainingOperator({})


def test_several_inputs_and_no_accuracy_of_a_flat_output() -> None:
    class Sum(TrainingOperator):
        def setup(self, config: Any) -> None:
            class Two(torch.nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.w = torch.nn.Parameter(torch.ones(()))

                def forward(self, x: Any, y: Any) -> Any:
                    return self.w * (x + y)

            model = Two()
            self.model, self.optimizer, self.criterion = self.register(
                models=model, optimizers=torch.optim.SGD(model.parameters(), lr=0.1),
                criterion=torch.nn.MSELoss())

    operator = Sum({})
    ones = torch.ones(3)
    assert operator.train_batch((ones, ones, 3 * ones)) == {"train_loss": 1.0, "num_samples": 3}
    assert set(operator.validate_batch((ones, ones, ones))) == {"val_loss", "num_samples"}


# --- registration ---------------------------------------------------------------------------------


def test_what_is_registered_comes_back_as_it_was_given() -> None:
    seen = []

    class Many(TrainingOperator):
        def setup(self, config: Any) -> None:
            models = tuple(torch.nn.Linear(1, 1) for _ in range(2))
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
            steps = [torch.optim.lr_scheduler.StepLR(o, 1) for o in optimizers]
            seen.append(self.register(models=models, optimizers=optimizers, schedulers=steps))
            one = torch.nn.Sequential(torch.nn.Linear(1, 1))  # is iterable itself
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
            seen.append(self.register(models=one, optimizers=optimizer, criterion=len))

    operator = Many({}, scheduler_step_freq="manual")
    (models, optimizers, steps), (one, optimizer, criterion) = seen
    assert type(models) is tuple and type(optimizers) is list and type(steps) is list
    assert isinstance(one, torch.nn.Sequential) and isinstance(optimizer, torch.optim.SGD)
    assert criterion is len and operator._get_original_models() == [one]


def test_wrong_registrations() -> None:
    class Wrong(TrainingOperator):
        def setup(self, config: Any) -> None:
            model = torch.nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            self.register(**{"models": model, "optimizers": optimizer, **config})

    with pytest.raises(TypeError, match="models must be"):
        Wrong({"models": "a model"})
    with pytest.raises(TypeError, match="optimizers must be"):
        Wrong({"optimizers": [1]})
    with pytest.raises(ValueError, match="ddp_args must be a dict"):
        Wrong({"ddp_args": [1]})
    with pytest.raises(ValueError, match="scheduler_step_freq"):
        Wrong({"schedulers": object()})


@pytest.mark.parametrize("freq, steps", [("batch", 8), ("epoch", 1), ("manual", 0)])
def test_when_a_scheduler_steps(freq: str, steps: int) -> None:
    class Scheduled(Line):
        def setup(self, config: Any) -> None:
            super().setup(config)
            schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 100)
            *_, self.scheduler = self.register(models=self.model, optimizers=self.optimizer,
                                               schedulers=schedule)

    runner = run(Scheduled, scheduler_step_freq=freq)
    runner.train(None, False, None, None, False)
    assert runner.operator.scheduler.last_epoch == steps


def test_half_precision() -> None:
    seen: list[Any] = []

    class Half(Line):
        def setup(self, config: Any) -> None:
            super().setup(config)
            self.model.register_forward_hook(lambda m, i, output: seen.append(output.dtype))

    assert not Line({}).use_fp16_native
    with pytest.warns(UserWarning, match="bf16"):
        operator = Half({}, use_fp16=True)
    assert operator.use_fp16_native and operator.use_fp16
    stats = operator.train_epoch(iter(operator._get_train_loader()))
    assert set(seen) == {torch.bfloat16} and stats["train_loss"] > 0
    assert operator.model.weight.dtype is torch.float32


# --- passes over data -----------------------------------------------------------------------------


def test_a_pass_of_some_steps_continues_where_the_last_ended() -> None:
    feed = Feed(lambda: [0] * 5 + [1] * 5)
    assert list(feed.batches(None)) == [0] * 5 + [1] * 5 and feed.epochs == 1
    assert list(feed.batches(5)) == [0] * 5 and feed.epochs == 2
    assert list(feed.batches(3)) == [1] * 3 and feed.epochs == 2
    assert list(feed.batches(5)) == [1, 1, 0, 0, 0] and feed.epochs == 3
    assert list(feed.batches(None)) == [0, 0] + [1] * 5 and feed.epochs == 3
    assert list(feed.batches(10)) == [0] * 5 + [1] * 5 and feed.epochs == 4
    assert list(feed.batches(None)) == [0] * 5 + [1] * 5 and feed.epochs == 5  # not an empty one
    assert list(feed.batches(25)) == [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5 + [0] * 5
    assert list(Feed(lambda: []).batches(3)) == []


@pytest.mark.parametrize("size, following", [(2, [4, 5, 6]), (1, [8, 9, 10]), (4, [2, 3, 4])])
def test_a_place_in_the_data_is_one_for_any_number_of_workers(size: int,
                                                              following: list[int]) -> None:
    feed = Feed(lambda: range(20))
    assert list(feed.batches(4)) == [0, 1, 2, 3]
    again = Feed(lambda: range(20))
    again.load(feed.state(2), size)
    assert list(again.batches(3)) == following and again.epochs == 1


def test_set_epoch_is_told_every_epoch() -> None:
    told: list[int] = []

    class Loader(list[int]):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    feed = Feed(lambda: Loader([1, 2]))
    list(feed.batches(5))
    assert told == [0, 1, 2]


def test_loops_get_what_they_take() -> None:
    seen: dict[str, Any] = {}

    class Oldest(Line):
        def train_epoch(self, iterator: Any, info: Any) -> dict[str, Any]:  # type: ignore[override]
            seen["oldest"] = info
            return {"done": len(list(iterator))}

    class Whole(Line):
        def train_epoch(self, iterator: Any, info: Any = None, **more: Any) -> dict[str, Any]:
            seen["whole"] = more
            return {"done": len(list(iterator))}

        def train_batch(self, batch: Any, batch_info: Any = None) -> Any:
            raise AssertionError

    class Batch(Line):
        def train_batch(self, batch: Any, batch_info: Any = None) -> Any:
            seen["batch"] = batch_info
            return super().train_batch(batch, batch_info)

    assert run(Oldest).train(3, False, {"mine": 1}, None, False) == ({"epoch": 1, "done": 3}, None)
    assert seen["oldest"] == {"mine": 1, SCHEDULER_STEP: None}
    run(Whole).train(3, False, None, None, False)
    assert seen["whole"] == {"num_steps": 3, "epoch_idx": 0}
    run(Batch).train(3, False, {"mine": 1}, None, False)
    assert {k: seen["batch"][k] for k in ("batch_idx", "global_step", "epoch_idx", "mine",
                                         NUM_STEPS)} == {
        "batch_idx": 2, "global_step": 2, "epoch_idx": 0, "mine": 1, NUM_STEPS: 3}


def test_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    run(Line, use_tqdm=True).train(None, False, {"num_epochs": 5}, None, False)
    assert "1/5e" in capsys.readouterr().err


# --- state ----------------------------------------------------------------------------------------


def test_a_state_is_what_another_operator_continues_from() -> None:
    class Counting(Line):
        passes = 0

        def validate(self, *args: Any) -> Any:
            self.passes += 1
            return super().validate(*args)

        def state_dict(self) -> Any:
            return {"passes": self.passes}

        def load_state_dict(self, state_dict: Any) -> None:
            self.passes = state_dict["passes"]

    first = run(Counting)
    first.train(None, False, None, None, False)
    first.train(3, False, None, None, False)
    assert first.validate(None, False, None)[1] is True  # it may have changed the state
    assert run(Line).validate(None, False, None)[1] is False
    second = Runner(Counting, {}, OPTIONS, first.state())
    assert (second.operator.passes, second.operator.global_step) == (1, 11)
    ends = [r.train(None, False, None, None, True) for r in (first, second)]
    assert ends[0][0] == ends[1][0] and ends[0][0]["batch_count"] == 5
    assert [m.weight.tolist() for m in first.models() or []] == [
        m.weight.tolist() for m in second.models() or []]


def test_a_state_that_does_not_fit() -> None:
    class Two(Line):
        def setup(self, config: Any) -> None:
            models = [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]
            self.register(models=models, optimizers=optimizer_creator(models[0], {}))

    with pytest.raises(ValueError, match="1 models, the operator has registered 2"):
        run(Two).load(run(Line).state())


# --- classes out of functions ---------------------------------------------------------------------


def created(**more: Any) -> Any:
    return TrainingOperator.from_creators(model_creator, optimizer_creator, data_creator,
                                          torch.nn.MSELoss, **more)


def test_an_operator_out_of_functions_is_the_same() -> None:
    operator = created()({})
    assert isinstance(operator, CreatorOperator) and operator.model is operator.models
    stats = operator.train_epoch(iter(operator._get_train_loader()))
    assert stats == Line({}).train_epoch(iter(Line({})._get_train_loader()))
    assert not hasattr(operator, "scheduler")


def test_functions_that_make_several() -> None:
    def scheduler_creator(optimizers: Any, config: Any) -> Any:
        return [torch.optim.lr_scheduler.StepLR(o, 1) for o in optimizers]

    made = TrainingOperator.from_creators(
        lambda config: [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)],
        lambda models, config: [torch.optim.SGD(m.parameters(), lr=0.1) for m in models],
        loss_creator=lambda config: config["loss"], scheduler_creator=scheduler_creator)
    operator = made({"loss": abs}, scheduler_step_freq="epoch")
    assert operator.model is operator.models[0] and operator.scheduler is operator.schedulers[0]
    assert operator.optimizer is operator.optimizers[0] and operator.criterion is abs


def test_wrong_functions() -> None:
    with pytest.raises(ValueError, match="model_creator must be a function"):
        TrainingOperator.from_creators(None, optimizer_creator)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one or two loaders"):
        TrainingOperator.from_creators(model_creator, optimizer_creator,
                                       lambda config: (1, 2, 3))({})


def test_data_is_made_in_turn() -> None:
    """Two threads lock as two processes do; without the lock both are inside at once."""
    inside, most = [], []

    def data(config: Any) -> Any:
        inside.append(1)
        time.sleep(0.1)
        most.append(len(inside))
        inside.pop()
        return [1]

    for in_turn, expected in ((True, 1), (False, 2)):
        made = TrainingOperator.from_creators(model_creator, optimizer_creator, data,
                                              serialize_data_creation=in_turn)
        threads = [threading.Thread(target=made, args=({},)) for _ in range(2)]
        most.clear()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        assert max(most) == expected


# --- a LightningModule ----------------------------------------------------------------------------


class Hooked(torch.nn.Module):  # type: ignore[misc]
    """What from_ptl needs of a LightningModule."""

    def __init__(self, config: Any):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.config, self.calls = config, []

    def setup(self, stage: str) -> None:
        self.calls.append(stage)

    def on_train_epoch_end(self) -> None:
        self.calls.append("epoch")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]), "extra": 2}

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)
        step = torch.optim.lr_scheduler.StepLR(optimizer, 100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": step, "interval": "step"}}

    def train_dataloader(self) -> Iterator[Any]:
        return data_creator(self.config)[0]  # type: ignore[no-any-return]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["calls"] = self.calls

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.calls = checkpoint["calls"]


def test_a_lightning_module_is_trained_by_its_steps() -> None:
    made = TrainingOperator.from_ptl(Hooked, val_dataloader=data_creator({})[1])
    runner = run(made)
    stats, state = runner.train(None, False, None, None, True)
    plain = Line({})
    expected = plain.train_epoch(iter(plain._get_train_loader()))
    assert stats["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-9)
    assert stats["extra"] == 2 and stats["num_samples"] == 32
    assert runner.validate(None, False, None)[0]["val_loss"] < stats["train_loss"]
    assert runner.operator._get_schedulers()[0].last_epoch == 8
    again = Runner(made, {}, OPTIONS, state)
    assert again.operator.get_model().calls == ["fit", "epoch"]
    assert again.operator.get_model().layer.weight.tolist() == plain.model.weight.tolist()


def test_a_real_lightning_module() -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="Lightning is not installed")

    class Real(Hooked, lightning.LightningModule):  # type: ignore[misc, name-defined]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            found = super().training_step(batch, batch_idx)
            self.log("extra", 1.0)
            return found

    stats, _ = run(TrainingOperator.from_ptl(Real)).train(None, False, None, None, False)
    assert stats["batch_count"] == 8


def test_what_is_no_lightning_module() -> None:
    with pytest.raises(TypeError, match="no training_step"):
        TrainingOperator.from_ptl(torch.nn.Linear)

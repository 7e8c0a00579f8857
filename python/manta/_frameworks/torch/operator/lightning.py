# SPDX-License-Identifier: Apache-2.0
"""An operator out of a LightningModule. Lightning itself is not needed: what counts is that the
class has training_step and configure_optimizers. Its hooks are called as Lightning calls them; what
needs a Lightning Trainer (self.trainer, manual optimization) is not there."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from manta._frameworks.torch import prepare
from manta._frameworks.torch.operator.operator import TrainingOperator
from manta._front.meters import NUM_SAMPLES
from manta._front.schedule import SCHEDULER_STEP_MANUAL


_PACKAGES = ("lightning", "pytorch_lightning")


class _Steps(torch.nn.Module):  # type: ignore[misc]
    """What is wrapped in DistributedDataParallel: gradients are averaged of what goes through
    forward()."""

    def __init__(self, inner: torch.nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, step: str, *args: Any) -> Any:
        return getattr(self.inner, step)(*args)


class LightningOperator(TrainingOperator):
    """What from_ptl() gives is a subclass of this one. Of several optimizers the first is
    stepped."""

    module_cls: type
    loaders: tuple[Any, Any]

    def setup(self, config: Any) -> None:
        module = _made(self.module_cls, config)
        self._module = module
        self._hook("on_fit_start")
        if self.local_rank == 0:
            self._hook("prepare_data")
        self._hook("setup", "fit")
        optimizers, self._intervals, schedulers = _configured(module.configure_optimizers())
        self._scheduler_step_freq = SCHEDULER_STEP_MANUAL  # see _intervals
        (self.model, *_), (self.optimizer, *_), *_ = self.register(
            models=[module], optimizers=optimizers, schedulers=schedulers)
        train, validation = self.loaders
        self.register_data(
            train_loader=self._own("train_dataloader") if train is None else train,
            validation_loader=self._own("val_dataloader") if validation is None else validation)

    def _wrapped(self, model: torch.nn.Module, ddp_args: dict[str, Any] | None) -> torch.nn.Module:
        return prepare.prepare_model(_Steps(model), move_to_device=False,
                                     wrap_ddp=self._is_distributed and self._wrap_ddp,
                                     ddp_kwargs={"find_unused_parameters": True,
                                                 **(ddp_args or {})})

    def get_model(self) -> Any:
        """The module itself."""
        return self._module

    def _hook(self, name: str, *args: Any) -> Any:
        method = getattr(self._module, name, None)
        return None if method is None else method(*args)

    def _own(self, name: str) -> Any:
        """The same of one that Lightning's own class, which has them all, would refuse."""
        method = getattr(self.module_cls, name, None)
        owner = getattr(method, "__module__", None) or ""
        return None if owner.partition(".")[0] in _PACKAGES else self._hook(name)

    def _step_schedulers(self, interval: str) -> None:
        for scheduler, when in zip(self._get_schedulers(), self._intervals):
            if when == interval:
                scheduler.step()

    # --- training ---------------------------------------------------------------------------------

    def train_epoch(self, iterator: Any, info: dict[str, Any] | None = None,
                    num_steps: int | None = None, epoch_idx: int = 0) -> dict[str, Any]:
        self._hook("on_train_epoch_start")
        found = super().train_epoch(iterator, info, num_steps, epoch_idx)
        self._hook("on_train_epoch_end")
        self._step_schedulers("epoch")
        return found

    def train_batch(self, batch: Any, batch_info: dict[str, Any] | None = None) -> dict[str, Any]:
        index = (batch_info or {}).get("batch_idx", 0)
        batch = self._on_device(batch)
        self._hook("on_train_batch_start", batch, index)
        with self.timers.record("fwd"), self._amp.autocast():
            output = self.model("training_step", batch, index)
        metrics = _metrics(output, "train_loss")
        loss = output["loss"] if isinstance(output, dict) else output
        with self.timers.record("grad"):
            self.optimizer.zero_grad()
            self._amp_scaler.scale(loss).backward()
            self._hook("on_after_backward")
        with self.timers.record("apply"):
            self._amp_scaler.step(self.optimizer)
            self._amp_scaler.update()
        self._step_schedulers("step")
        self._hook("on_train_batch_end", output, batch, index)
        return {**metrics, NUM_SAMPLES: _samples(batch)}

    # --- validation -------------------------------------------------------------------------------

    def validate(self, iterator: Any, info: dict[str, Any] | None = None) -> dict[str, Any]:
        self._hook("on_validation_epoch_start")
        found = super().validate(iterator, info)
        self._hook("on_validation_epoch_end")
        return found

    def validate_batch(self, batch: Any, batch_info: dict[str, Any] | None = None
                       ) -> dict[str, Any]:
        index = (batch_info or {}).get("batch_idx", 0)
        batch = self._on_device(batch)
        with self.timers.record("eval_fwd"), self._amp.autocast():
            output = self._module.validation_step(batch, index)
        return {**_metrics(output, "val_loss"), NUM_SAMPLES: _samples(batch)}

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        self._hook("on_save_checkpoint", state)
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        self._hook("on_load_checkpoint", state_dict)


def operator_of(module_cls: type, train: Any, validation: Any) -> type[LightningOperator]:
    for name in ("training_step", "configure_optimizers"):
        if not isinstance(module_cls, type) or not callable(getattr(module_cls, name, None)):
            raise TypeError(f"from_ptl takes the class of a LightningModule, not {module_cls!r}, "
                            f"which has no {name}")
    return type(module_cls.__name__, (LightningOperator,),
                {"module_cls": module_cls, "loaders": (train, validation)})


def _made(cls: Any, config: Any) -> Any:
    takes = "config" in inspect.signature(cls.__init__).parameters
    return cls(config=config) if takes else cls()


def _configured(given: Any) -> tuple[list[Any], list[str], list[Any]]:
    """What configure_optimizers returned, in any of its forms: the optimizers, and of each
    scheduler when it steps and itself."""
    optimizers, schedulers = given, []
    if isinstance(given, dict):
        optimizers, schedulers = given["optimizer"], given.get("lr_scheduler", [])
    elif isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], (list,
                                                                                       tuple)):
        optimizers, schedulers = given
    optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
    if not isinstance(schedulers, (list, tuple)):
        schedulers = [schedulers]
    asked = [s if isinstance(s, dict) else {"scheduler": s} for s in schedulers]
    return optimizers, [s.get("interval", "epoch") for s in asked], [s["scheduler"] for s in asked]


def _metrics(output: Any, name: str) -> dict[str, Any]:
    """The numbers that a step returned: a loss, or a dict with one."""
    found = output if isinstance(output, dict) else {} if output is None else {name: output}
    numbers = {name if key == "loss" else key: _number(value) for key, value in found.items()}
    return {key: value for key, value in numbers.items() if value is not None}


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value.detach()) if value.numel() == 1 else None
    return value if isinstance(value, (int, float)) else None


def _samples(batch: Any) -> int:
    """Of a batch: the length of its first tensor."""
    first = next(iter(batch.values()), None) if isinstance(batch, dict) else (
        batch[0] if isinstance(batch, (list, tuple)) and batch else batch)
    return len(first) if isinstance(first, torch.Tensor) and first.dim() else 1

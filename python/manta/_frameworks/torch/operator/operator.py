# SPDX-License-Identifier: Apache-2.0
"""The base class of operators. A subclass has `setup`, which registers what is trained, and those
loops that are other ones than here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

import torch

from manta._front.meters import NUM_SAMPLES, AverageMeterCollection, TimerCollection
from manta._front.schedule import (NUM_STEPS, SCHEDULER_STEP_BATCH, SCHEDULER_STEP_EPOCH,
                                   USE_FP16)
from manta._frameworks.torch import device as _device
from manta._frameworks.torch.operator.registration import Registration


class TrainingOperator(Registration):
    """One worker's part of a training: what is trained, and the loops.

        class Operator(TrainingOperator):
            def setup(self, config):
                model = …
                self.model, self.optimizer, self.criterion = self.register(
                    models=model, optimizers=…, criterion=…)
                self.register_data(train_loader=…, validation_loader=…)

    `setup` is called by the constructor. The loops here use self.model, self.optimizer,
    self.criterion and, if there is one, self.scheduler; a subclass may have its own train_epoch,
    train_batch, validate or validate_batch instead.
    """

    model: Any
    optimizer: Any
    criterion: Any
    scheduler: Any

    def __init__(self, config: Any, world_rank: int = 0, local_rank: int = 0,
                 is_distributed: bool = False, device: Any = None, use_gpu: bool = False,
                 use_fp16: Any = False, use_tqdm: bool = False, wrap_ddp: bool = False,
                 add_dist_sampler: bool = False, scheduler_step_freq: str | None = None):
        use_gpu = bool(use_gpu) and _device.has_gpu()
        if device is None:
            device = _device.get_device() if use_gpu else torch.device("cpu")
        super().__init__(device, use_gpu, use_fp16, is_distributed, wrap_ddp, add_dist_sampler,
                         scheduler_step_freq)
        self._config = {} if config is None else config
        self._world_rank, self._local_rank = world_rank, local_rank
        self._use_tqdm = use_tqdm
        self.global_step = 0  # batches trained on so far
        self.timers = TimerCollection()
        self.setup(self._config)

    def setup(self, config: Any) -> None:
        """To be overridden: makes model, optimizer and data, and calls register() and
        register_data()."""
        raise NotImplementedError(f"{type(self).__name__} has no setup(self, config), which is to "
                                  f"call self.register(models=…, optimizers=…)")

    # --- training ---------------------------------------------------------------------------------

    def train_epoch(self, iterator: Iterator[Any], info: dict[str, Any] | None = None,
                    num_steps: int | None = None, epoch_idx: int = 0) -> dict[str, Any]:
        """One pass over the batches; the averages of what train_batch returns. train_batch finds
        info, which was given to train(), and the number of the epoch in its batch_info."""
        info = {**(info or {}), NUM_STEPS: num_steps, USE_FP16: self.use_fp16,
                "epoch_idx": epoch_idx}
        self._needed("model")
        scheduler = getattr(self, "scheduler", None)
        meters = AverageMeterCollection()
        self.model.train()
        for index, batch in enumerate(self._shown(iterator, info, meters)):
            about = {"batch_idx": index, "global_step": self.global_step, **info}
            metrics = self.train_batch(batch, about)
            if scheduler is not None and self.scheduler_step_freq == SCHEDULER_STEP_BATCH:
                scheduler.step()
            meters.update(metrics, n=metrics.pop(NUM_SAMPLES, 1))
            self.global_step += 1
        if scheduler is not None and self.scheduler_step_freq == SCHEDULER_STEP_EPOCH:
            scheduler.step()
        return meters.summary()

    def _shown(self, batches: Iterable[Any], info: dict[str, Any],
               meters: AverageMeterCollection) -> Iterator[Any]:
        """The same, with a progress bar on rank 0 if one was asked for."""
        if not self._use_tqdm or self._world_rank != 0:
            yield from batches
            return
        total = info.get(NUM_STEPS)
        if total is None and isinstance(batches, Sized):
            total = len(batches)
        with _bar()(total=total, desc=_title(info), unit="batch", leave=False) as bar:
            for batch in batches:
                yield batch
                bar.update()
                if "last_train_loss" in (found := meters.summary()):
                    bar.set_postfix(loss=found["last_train_loss"])

    def train_batch(self, batch: Any, batch_info: dict[str, Any] | None = None) -> dict[str, Any]:
        """One step. The batch is (*features, target); the model gets all features."""
        self._needed("model", "optimizer", "criterion")
        *features, target = self._on_device(batch)
        with self.timers.record("fwd"), self._amp.autocast():
            loss = self.criterion(self.model(*features), target)
        with self.timers.record("grad"):
            self.optimizer.zero_grad()
            self._amp_scaler.scale(loss).backward()
        with self.timers.record("apply"):
            self._amp_scaler.step(self.optimizer)
            self._amp_scaler.update()
        return {"train_loss": loss.item(), NUM_SAMPLES: features[0].size(0)}

    # --- validation -------------------------------------------------------------------------------

    def validate(self, iterator: Iterator[Any], info: dict[str, Any] | None = None
                 ) -> dict[str, Any]:
        """One pass without gradients; the averages of what validate_batch returns."""
        self._needed("model")
        meters = AverageMeterCollection()
        self.model.eval()
        with torch.no_grad():
            for index, batch in enumerate(iterator):
                metrics = self.validate_batch(batch, {"batch_idx": index, **(info or {})})
                meters.update(metrics, n=metrics.pop(NUM_SAMPLES, 1))
        return meters.summary()

    def validate_batch(self, batch: Any, batch_info: dict[str, Any] | None = None
                       ) -> dict[str, Any]:
        """Loss and accuracy. What counts as the answer is the largest output."""
        self._needed("model", "criterion")
        *features, target = self._on_device(batch)
        with self.timers.record("eval_fwd"), self._amp.autocast():
            output = self.model(*features)
            loss = self.criterion(output, target)
        found = {"val_loss": loss.item(), NUM_SAMPLES: target.size(0)}
        if output.dim() > 1:
            right = (torch.max(output.data, 1).indices == target).sum().item()
            found["val_accuracy"] = right / target.size(0)
        return found

    def _needed(self, *names: str) -> None:
        for name in names:
            if not hasattr(self, name):
                raise RuntimeError(f"this loop uses self.{name}, which {type(self).__name__}."
                                   f"setup() did not set\nhint: self.model, self.optimizer, "
                                   f"self.criterion = self.register(models=…, optimizers=…, "
                                   f"criterion=…), or override the loop")

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        """To be overridden: what is to be saved besides that which was registered."""

    def load_state_dict(self, state_dict: Any) -> None:
        """To be overridden: takes what state_dict() gave."""

    # --- ready classes ----------------------------------------------------------------------------

    @classmethod
    def from_creators(cls, model_creator: Callable[..., Any], optimizer_creator: Callable[..., Any],
                      data_creator: Callable[..., Any] | None = None, loss_creator: Any = None,
                      scheduler_creator: Callable[..., Any] | None = None,
                      serialize_data_creation: bool = True) -> type[Any]:
        """A class whose setup() calls these functions. serialize_data_creation: workers of a host
        call data_creator one after the other, so that only the first downloads."""
        from manta._frameworks.torch.operator import creators
        return creators.operator_of(
            creators.Creators(model_creator, optimizer_creator, data_creator, loss_creator,
                              scheduler_creator, serialize_data_creation))

    @classmethod
    def from_ptl(cls, lightning_module_cls: type, train_dataloader: Any = None,
                 val_dataloader: Any = None) -> type[Any]:
        """A class that trains a LightningModule: its training_step, validation_step and hooks."""
        from manta._frameworks.torch.operator import lightning
        return lightning.operator_of(lightning_module_cls, train_dataloader, val_dataloader)

    # --- what it was made with --------------------------------------------------------------------

    @property
    def config(self) -> Any:
        return self._config

    @property
    def world_rank(self) -> int:
        return self._world_rank

    @property
    def local_rank(self) -> int:
        return self._local_rank

    @property
    def use_tqdm(self) -> bool:
        return self._use_tqdm


def _bar() -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped]
    except ImportError:
        raise ModuleNotFoundError("use_tqdm=True needs tqdm\nhint: pip install tqdm",
                                  name="tqdm") from None
    return tqdm


def _title(info: dict[str, Any]) -> str:
    of = f"/{info['num_epochs']}" if "num_epochs" in info else ""
    return f"{info['epoch_idx'] + 1}{of}e"

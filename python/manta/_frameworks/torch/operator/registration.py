# SPDX-License-Identifier: Apache-2.0
"""What an operator trains, made ready for its worker: device, precision, data parallelism."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from manta._frameworks.torch import amp as _amp
from manta._frameworks.torch import loader as _loader
from manta._frameworks.torch import nest, prepare


class Precision:
    """How an operator computes: half precision in autocast() if it was asked for and can be."""

    def __init__(self, use_fp16: Any, device: torch.device):
        dtype = _amp.wanted_dtype("fp16" if use_fp16 else False, device)
        self.device = device
        self.amp = None if dtype is None else _amp.make(dtype, device)

    def autocast(self) -> Any:
        if self.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.amp.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """For float16; a disabled one passes everything on."""
        if self.amp is not None and self.amp.scaler is not None:
            return self.amp.scaler
        return torch.amp.GradScaler(self.device.type, enabled=False)


class Registration:
    """The part of an operator that register() and register_data() fill."""

    def __init__(self, device: torch.device, use_gpu: bool, use_fp16: Any, is_distributed: bool,
                 wrap_ddp: bool, add_dist_sampler: bool, scheduler_step_freq: str | None):
        self._device, self._use_gpu, self._use_fp16 = device, use_gpu, use_fp16
        self._is_distributed, self._wrap_ddp = is_distributed, wrap_ddp
        self._add_dist_sampler = add_dist_sampler
        self._scheduler_step_freq = scheduler_step_freq
        self._amp = Precision(use_fp16, device)
        self._amp_scaler = self._amp.scaler()
        self._train_loader: Any = None
        self._validation_loader: Any = None

    # --- models and what belongs to them ----------------------------------------------------------

    def register(self, *, models: Any, optimizers: Any, criterion: Any = None,
                 schedulers: Any = None, ddp_args: dict[str, Any] | None = None,
                 apex_args: dict[str, Any] | None = None) -> tuple[Any, ...]:
        """Moves the model to this worker's device and wraps it in DistributedDataParallel if the
        operator is one of several. Models, optimizers and schedulers may be one or a list; they
        come back as they were given, with the criterion and the schedulers if there are any.
        ddp_args go to DistributedDataParallel; apex_args are ignored."""
        for name, given in (("ddp_args", ddp_args), ("apex_args", apex_args)):
            if given is not None and not isinstance(given, dict):
                raise ValueError(f"{name} must be a dict, not {given!r}")
        self._check_scheduler(schedulers)
        self._original_models = _listed(models, torch.nn.Module, "models")
        self._models = [self._prepared(model, ddp_args) for model in self._original_models]
        self._optimizers = [prepare.prepare_optimizer(optimizer) for optimizer
                            in _listed(optimizers, torch.optim.Optimizer, "optimizers")]
        self._criterion = criterion.to(self._device) if (
            self._use_gpu and isinstance(criterion, torch.nn.Module)) else criterion
        self._schedulers = None if schedulers is None else _listed(schedulers, None, "schedulers")
        registered = [_as_given(self._models, models), _as_given(self._optimizers, optimizers)]
        if criterion is not None:
            registered.append(self._criterion)
        if self._schedulers is not None:
            registered.append(_as_given(self._schedulers, schedulers))
        return tuple(registered)

    def _check_scheduler(self, schedulers: Any) -> None:
        if schedulers is not None and self._scheduler_step_freq is None:
            raise ValueError("a scheduler was registered, and nothing says when it steps\n"
                             "hint: TorchTrainer(scheduler_step_freq='batch', 'epoch', or 'manual' "
                             "if you step it yourself)")

    def _prepared(self, model: torch.nn.Module, ddp_args: dict[str, Any] | None) -> torch.nn.Module:
        if self._use_gpu:
            model.to(self._device)
        return self._wrapped(model, ddp_args)

    def _wrapped(self, model: torch.nn.Module, ddp_args: dict[str, Any] | None) -> torch.nn.Module:
        return prepare.prepare_model(model, move_to_device=False,
                                     wrap_ddp=self._is_distributed and self._wrap_ddp,
                                     ddp_kwargs=ddp_args)

    def _on_device(self, batch: Any) -> Any:
        return nest.to_device(batch, self._device) if self._use_gpu else batch

    # --- data -------------------------------------------------------------------------------------

    def register_data(self, *, train_loader: Any = None, validation_loader: Any = None) -> None:
        """What the iterators of train_epoch and validate read: of a DataLoader each worker gets its
        part, if the trainer has add_dist_sampler."""
        self._train_loader = self._divided(train_loader)
        self._validation_loader = self._divided(validation_loader)

    @staticmethod
    def should_wrap_dataloader(loader: Any) -> bool:
        """Whether it can be divided among workers."""
        return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)

    def _divided(self, loader: Any) -> Any:
        if loader is None:
            return None
        divide = self._is_distributed and self._add_dist_sampler and \
            self.should_wrap_dataloader(loader)
        return _loader.prepare_data_loader(loader, add_dist_sampler=divide, move_to_device=False)

    def get_data_loaders(self) -> tuple[Any, Any]:
        """The loaders as they are read here; None for one that was not registered."""
        return self._train_loader, self._validation_loader

    def _get_train_loader(self) -> Any:
        """It has set_epoch(), too."""
        return self._registered("_train_loader", "register_data(train_loader=…)")

    def _get_validation_loader(self) -> Any:
        return self._registered("_validation_loader", "register_data(validation_loader=…)")

    # --- what was registered ----------------------------------------------------------------------

    def _registered(self, name: str, call: str) -> Any:
        if getattr(self, name, None) is None:
            raise RuntimeError(f"{type(self).__name__} has none: setup() is to call self.{call}")
        return getattr(self, name)

    def _get_original_models(self) -> list[torch.nn.Module]:
        """The models as they were given, without what is wrapped around them."""
        found: list[torch.nn.Module] = self._registered("_original_models", "register(models=…)")
        return found

    def _get_optimizers(self) -> list[torch.optim.Optimizer]:
        found: list[torch.optim.Optimizer] = self._registered("_optimizers",
                                                              "register(optimizers=…)")
        return found

    def _get_schedulers(self) -> list[Any]:
        """None of them if none were registered."""
        return getattr(self, "_schedulers", None) or []

    def _get_criterion(self) -> Any:
        return self._registered("_criterion", "register(criterion=…)")

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def device_ids(self) -> list[int | None] | None:
        """As DistributedDataParallel wants them; None on a CPU."""
        return [self._device.index] if self._use_gpu else None

    @property
    def use_gpu(self) -> bool:
        """Whether it was asked for, and there is one."""
        return self._use_gpu

    @property
    def use_fp16(self) -> Any:
        return self._use_fp16

    @property
    def use_fp16_native(self) -> bool:
        """Whether loops of one's own are to use self._amp.autocast() and self._amp_scaler."""
        return self._amp.amp is not None

    @property
    def scheduler_step_freq(self) -> str | None:
        return self._scheduler_step_freq


# --- one or several -------------------------------------------------------------------------------


def _listed(given: Any, kind: type | None, name: str) -> list[Any]:
    """A model may be iterable itself: what is of the kind is one."""
    several = not isinstance(given, kind) if kind else isinstance(given, (list, tuple))
    found = list(given) if several and isinstance(given, Iterable) else [given]
    for one in found:
        if kind is not None and not isinstance(one, kind):
            raise TypeError(f"{name} must be of {kind.__module__}.{kind.__name__}, not {one!r}")
    return found


def _as_given(items: list[Any], given: Any) -> Any:
    if isinstance(given, tuple):
        return tuple(items)
    return items if isinstance(given, list) or len(items) != 1 else items[0]

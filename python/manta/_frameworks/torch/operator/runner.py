# SPDX-License-Identifier: Apache-2.0
"""An operator in its worker: what a trainer calls there. All ranks are called at the same time."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from typing import Any

import torch

from manta import _manta
from manta._frameworks.torch import device as _device
from manta._frameworks.torch.operator.feed import Feed
from manta._frameworks.torch.operator.operator import TrainingOperator
from manta._front.meters import BATCH_SIZE
from manta._front.schedule import SCHEDULER_STEP


class Runner:
    """options: further arguments of the operator. state: to begin from, as state() gave it."""

    def __init__(self, operator_cls: type[TrainingOperator], config: Any, options: dict[str, Any],
                 state: bytes | None = None):
        self._rank, self._size = _device.world()
        self._group = _group()
        options = {**options, "wrap_ddp": options["wrap_ddp"] and self._size > 1}
        local_rank = _manta.place()[2] if _manta.in_session() else 0
        self.operator = operator_cls(_divided(config, self._size), world_rank=self._rank,
                                     local_rank=local_rank, is_distributed=self._size > 1,
                                     **options)
        self._feed = Feed(self.operator._get_train_loader)
        self._validation = Feed(self.operator._get_validation_loader)
        if state is not None:
            self.load(state)

    def fits(self) -> bool:
        """Whether it can go on: its models are wrapped for the ranks that there are now."""
        return (self._rank, self._size) == _device.world() and self._group is _group()

    # --- passes -----------------------------------------------------------------------------------

    def train(self, num_steps: int | None, profile: bool, info: dict[str, Any] | None,
              dataset: Any, keep: bool) -> tuple[dict[str, Any], bytes | None]:
        """One pass: its metrics and, on rank 0 and if asked, the state after it."""
        about = {SCHEDULER_STEP: self.operator.scheduler_step_freq, **(info or {})}
        more = {"num_steps": num_steps, "epoch_idx": self._feed.epochs}
        batches = self._feed.batches(num_steps) if dataset is None else self._shard(dataset,
                                                                                  num_steps)
        self._measure(profile)
        epoch = self.operator.train_epoch
        with self.operator.timers.record("train_epoch"):
            found = epoch(batches, about, **_accepted(epoch, more))
        stats = {"epoch": self._feed.epochs, **found}
        return self._profiled(stats, profile), self.state_of_first() if keep else None

    def validate(self, num_steps: int | None, profile: bool, info: dict[str, Any] | None
                 ) -> tuple[dict[str, Any], bool]:
        """One pass: its metrics, and whether it may have changed what state() gives."""
        self._measure(profile)
        with self.operator.timers.record("validation"):
            found = self.operator.validate(self._validation.batches(num_steps), dict(info or {}))
        changed = type(self.operator).state_dict is not TrainingOperator.state_dict
        return self._profiled(dict(found), profile), changed

    def _shard(self, dataset: Any, num_steps: int | None) -> Any:
        self._feed.epochs += 1
        own = Feed(lambda: dataset.get_shard(self._rank))
        return own.batches(num_steps)

    def _measure(self, profile: bool) -> None:
        timers = self.operator.timers
        timers.reset()
        timers.enable() if profile else timers.disable()

    def _profiled(self, stats: dict[str, Any], profile: bool) -> dict[str, Any]:
        return {**stats, "profile": self.operator.timers.stats()} if profile else stats

    # --- state ------------------------------------------------------------------------------------

    def state(self) -> bytes:
        """A file as torch.save writes it. Models are saved without what is wrapped around them."""
        operator = self.operator
        state = {"epoch": self._feed.epochs, "operator": operator.state_dict(),
                 "models": [model.state_dict() for model in operator._get_original_models()],
                 "optimizers": [o.state_dict() for o in operator._get_optimizers()],
                 "global_step": operator.global_step, "data": self._feed.state(self._size)}
        if schedulers := operator._get_schedulers():
            state["schedulers"] = [scheduler.state_dict() for scheduler in schedulers]
        if operator._amp_scaler.is_enabled():
            state["amp_native"] = operator._amp_scaler.state_dict()
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue()

    def state_of_first(self) -> bytes | None:
        return self.state() if self._rank == 0 else None

    def load(self, data: bytes) -> None:
        operator = self.operator
        state = read(data)
        for name, parts in (("models", operator._get_original_models()),
                            ("optimizers", operator._get_optimizers()),
                            ("schedulers", operator._get_schedulers())):
            saved = state.get(name) or []
            if len(saved) != len(parts):
                raise ValueError(f"the state has {len(saved)} {name}, the operator has registered "
                                 f"{len(parts)}")
            for part, one in zip(parts, saved):
                part.load_state_dict(one)
        if "amp_native" in state and operator._amp_scaler.is_enabled():
            operator._amp_scaler.load_state_dict(state["amp_native"])
        operator.global_step = state.get("global_step", operator.global_step)
        self._feed.load(state.get("data", {"epochs": state["epoch"], "batches": 0}), self._size)
        operator.load_state_dict(state["operator"])

    # --- what else is asked for -------------------------------------------------------------------

    def models(self) -> list[torch.nn.Module] | None:
        """On rank 0, in host memory: the driver has no right to a worker's GPU."""
        if self._rank != 0:
            return None
        return [copy.deepcopy(model).cpu() for model in self.operator._get_original_models()]

    def apply(self, function: Any) -> Any:
        return function(self.operator)

    def step_schedulers(self, metric: Any) -> None:
        for scheduler in self.operator._get_schedulers():
            scheduler.step(metric)


def read(data: bytes) -> dict[str, Any]:
    """What state() gave, of this run or of a file that is trusted; tensors in host memory."""
    found: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
    return found


def read_file(data: bytes, trusted: bool) -> dict[str, Any]:
    """Of a file from elsewhere only tensors and plain values are taken."""
    if trusted:
        return read(data)
    try:
        found: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as e:
        raise PermissionError(f"the checkpoint contains more than tensors and plain values: "
                              f"loading it runs the code that its author put into it\n"
                              f"hint: load(…, trust=True) if it is yours\n{e}") from None
    return found


def write(state: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _group() -> Any:
    """The process group that there is, or None."""
    return torch.distributed.group.WORLD if _device.has_group() else None


def _accepted(function: Any, more: dict[str, Any]) -> dict[str, Any]:
    """What a loop of the user's takes besides the batches and info: those of older programs take
    nothing else."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return more
    return {name: value for name, value in more.items() if name in parameters}


def _divided(config: Any, size: int) -> Any:
    """The batch size of all workers becomes that of each."""
    if not isinstance(config, dict) or BATCH_SIZE not in config:
        return config
    return {**config, BATCH_SIZE: config[BATCH_SIZE] // size}

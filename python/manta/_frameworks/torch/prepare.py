# SPDX-License-Identifier: Apache-2.0
"""A model and its optimizer, made ready for this worker: device, data parallelism, precision."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel

from manta._frameworks.torch import amp as _amp
from manta._frameworks.torch import device as _device
from manta._frameworks.torch import blocks, registry
from manta._frameworks.torch.strategy import UNSAID, choose

_DDP_PREFIX = "module."


def prepare_model(model: torch.nn.Module, move_to_device: bool = True, wrap_ddp: Any = True,
                  ddp_kwargs: dict[str, Any] | None = None, *, parallel_strategy: Any = UNSAID,
                  parallel_strategy_kwargs: dict[str, Any] | None = None,
                  activation_checkpointing: Any = False) -> torch.nn.Module:
    """The model on this worker's device, divided as the strategy says. Call it before the first
    step.

    parallel_strategy: "ddp" (the default; DistributedDataParallel if there are several workers, and
    the options are its arguments), None, or "fsdp": each worker keeps a piece of the weights, of
    the gradients and of the optimizer's state (FSDP2, fully_shard). Make the optimizer afterwards,
    or give it to prepare_optimizer(). Options of "fsdp", besides those of fully_shard: wrap (which
    parts are gathered one at a time: a class, its name, several of them, or a function of a module;
    without it repeated blocks), min_num_params, cpu_offload, sync_module_states.

    activation_checkpointing: the backward pass computes blocks again instead of remembering what
    they computed. True: those of `wrap`, else the repeated ones; or as `wrap`.
    """
    strategy, options = choose(wrap_ddp, ddp_kwargs, parallel_strategy, parallel_strategy_kwargs)
    known = registry.current()
    device = _device.get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if strategy == "fsdp" and _has_others_or_group():
        return _shard(known, model, device, move_to_device, options, activation_checkpointing)
    if move_to_device:
        model = model.to(device)
    if not isinstance(model, DistributedDataParallel):
        blocks.recompute(model, blocks.to_recompute(model, activation_checkpointing, []))
    if known.amp is not None:
        _amp.cast_forward(known.amp, model)
    known.add_model(unwrap(model))
    if strategy == "ddp" and _device.world()[1] > 1 and _needs_ddp(model):
        model = _wrap(model, device, options)
    return model


def _has_others_or_group() -> bool:
    """One worker is a group too: then mixed precision and checkpoints are those of many. Plain code
    has none, and its model stays whole."""
    if _device.world()[1] > 1:
        _check_group()
    return _device.has_group()


def _shard(known: registry.Registry, model: torch.nn.Module, device: torch.device, move: bool,
           options: dict[str, Any], again: Any) -> torch.nn.Module:
    from manta._frameworks.torch import fsdp
    fsdp.check(model)
    inner = unwrap(model)
    if not fsdp.is_sharded(inner):
        if not move and any(p.device != device for p in inner.parameters()):
            raise ValueError("move_to_device=False: the strategy 'fsdp' puts the pieces on the "
                             "worker's device\nhint: leave it out; the option cpu_offload=True "
                             "keeps them in host memory")
        dtype = known.amp.dtype if known.amp is not None else None
        known.replaced |= fsdp.shard(inner, device, dtype, options, again)
    known.add_model(inner)
    return model


def _needs_ddp(model: torch.nn.Module) -> bool:
    """DDP refuses a model that has nothing to train, such as a frozen teacher."""
    return not isinstance(model, DistributedDataParallel) and \
        any(p.requires_grad for p in model.parameters())


def _wrap(model: torch.nn.Module, device: torch.device,
          options: dict[str, Any]) -> DistributedDataParallel:
    _check_group()
    if device.type == "cuda" and all(p.device == device for p in model.parameters()):
        options = {"device_ids": [device.index], "output_device": device.index, **options}
    wrapped = DistributedDataParallel(model, **options)
    wrapped.register_load_state_dict_pre_hook(_add_prefix)
    return wrapped


def _check_group() -> None:
    if not _device.has_group():
        raise RuntimeError("there are several workers and no process group between them\n"
                           "hint: Trainer(backend='torch') makes one")


def _add_prefix(module: torch.nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Checkpoints hold the names of the model itself: a wrapped one loads them as well."""
    if not any(key.startswith(prefix + _DDP_PREFIX) for key in state):
        for key in [k for k in state if k.startswith(prefix)]:
            state[prefix + _DDP_PREFIX + key[len(prefix):]] = state.pop(key)


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The user's own model."""
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
        elif hasattr(model, "_orig_mod"):  # torch.compile
            model = model._orig_mod
        else:
            return model


# --- the optimizer --------------------------------------------------------------------------------


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The same optimizer, which from now on steps as the precision of this run needs."""
    known = registry.current()
    if known.replaced:
        from manta._frameworks.torch import fsdp
        fsdp.switch(optimizer, known.replaced)
    _follow(optimizer)
    if known.amp is not None and known.amp.scaler is not None:
        _amp.route_step(known.amp, optimizer)
    known.add_optimizer(optimizer)
    return optimizer


def _follow(optimizer: torch.optim.Optimizer) -> None:
    """State that was loaded before the model was moved goes where the weights went; step counts
    stay where the optimizer wants them."""
    for weight, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() and value.device != weight.device:
                state[key] = value.to(weight.device)


def backward(tensor: torch.Tensor) -> None:
    """tensor.backward(), with the loss scaled where fp16 needs that. With several optimizers: all
    backwards of an iteration that share weights first, then the steps."""
    known = registry.current()
    if known.amp is None:
        tensor.backward()
    else:
        known.amp.backward(tensor)


def unscale(optimizer: torch.optim.Optimizer) -> None:
    """The gradients in their true size: between backward() and step(), before they are clipped.
    Does nothing where they are not scaled."""
    known = registry.current()
    if known.amp is not None and known.amp.scaler is not None:
        known.amp.scaler.unscale_(optimizer)


# --- both -----------------------------------------------------------------------------------------


def accelerate(model: Any = None, loss: Any = None, *,
               optimizer: torch.optim.Optimizer | None = None, mixed_precision: Any = False,
               amp: Any = None, move_to_device: bool = True, wrap_ddp: bool = True,
               ddp_kwargs: dict[str, Any] | None = None, strategy: Any = UNSAID,
               strategy_kwargs: dict[str, Any] | None = None,
               activation_checkpointing: Any = False) -> Any:
    """Device, data parallelism and precision in one line.

        model = accelerate(model, loss, mixed_precision=True)
        model, optimizer = accelerate(model, optimizer=optimizer, mixed_precision="fp16")
        model, optimizer = accelerate(model, optimizer=optimizer, strategy="fsdp",
                                      activation_checkpointing=True)
        accelerate(amp=True)     # first in the function: for what is prepared later

    Mixed precision: True (bf16, or fp16 on a GPU without it), "fp16" or "bf16". A loss that is a
    module is moved to the device. fp16 needs the optimizer, and backward(loss). The strategy, its
    options and activation_checkpointing are those of prepare_model.
    """
    if isinstance(model, (bool, str)):  # accelerate(True)
        model, amp = None, model
    _set_precision(mixed_precision if amp is None else amp, alone=model is None)
    if model is None:
        if loss is not None or optimizer is not None:
            raise TypeError("accelerate: a loss or an optimizer without a model")
        return None
    _take_loss(loss, move_to_device)
    model = prepare_model(model, move_to_device, wrap_ddp, ddp_kwargs, parallel_strategy=strategy,
                          parallel_strategy_kwargs=strategy_kwargs,
                          activation_checkpointing=activation_checkpointing)
    if optimizer is not None:
        return model, prepare_optimizer(optimizer)
    known = registry.current()
    if known.amp is not None and known.amp.scaler is not None:
        known.tell("fp16 needs its optimizer: accelerate(model, optimizer=optimizer, …) or "
                   "prepare_optimizer(optimizer)")
    return model


def _set_precision(wanted: Any, alone: bool) -> None:
    """For the whole run: one scaler serves all models. Not asking keeps what was set."""
    known = registry.current()
    device = _device.get_device()
    dtype = _amp.wanted_dtype(wanted, device)
    if dtype is None or dtype is known.precision:
        return
    if known.precision is not None and known.keeps:
        raise RuntimeError("this run has another precision already: set it once")
    if alone and known.models:
        raise RuntimeError("accelerate() was called after a model had been prepared\n"
                           "hint: call it first in the train function")
    known.precision = dtype
    known.amp = _amp.make(dtype, device)


def _take_loss(loss: Any, move_to_device: bool) -> None:
    if loss is not None and not callable(loss):
        raise TypeError(f"the loss must be a function or a module, not {type(loss).__name__}")
    if isinstance(loss, torch.nn.Module):
        if any(p.requires_grad for p in loss.parameters()):
            raise ValueError("this loss has weights of its own: make it a part of the model, or "
                             "its gradients would differ between workers")
        if move_to_device:
            loss.to(_device.get_device())

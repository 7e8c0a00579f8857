# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: the forward pass in half precision where that is safe, weights and gradients in
float32, and for fp16 a loss that is scaled up so that small gradients do not vanish."""

from __future__ import annotations

import copy
import functools
import operator
import os
import types
from typing import Any, Callable

import torch

from manta import _manta
from manta._frameworks.torch import nest, registry

_DTYPES = {"fp16": torch.float16, "float16": torch.float16, torch.float16: torch.float16,
           "bf16": torch.bfloat16, "bfloat16": torch.bfloat16, torch.bfloat16: torch.bfloat16}
_OFF = (None, False, "no", "fp32")


class Amp:
    """How a run computes. The scaler is there for fp16 alone; bf16 has float32's range."""

    def __init__(self, device: torch.device, dtype: torch.dtype):
        self.device = device
        self.dtype = dtype
        self.scaler = torch.amp.GradScaler(device.type) if dtype is torch.float16 else None
        self.backwards = 0  # scaled ones
        self._stepped = False  # since the scale was last looked at

    def backward(self, tensor: torch.Tensor) -> None:
        """The new scale begins here, not in step(): several optimizers may share a backward."""
        if self.scaler is None:
            tensor.backward()
            return
        self.settle()
        self.scaler.scale(tensor).backward()
        self.backwards += 1

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscales and steps, unless a gradient is infinite."""
        assert self.scaler is not None
        self._stepped = True
        return self.scaler.step(optimizer, *args, **kwargs)

    def settle(self) -> None:
        if self.scaler is not None and self._stepped:
            self.scaler.update()
            self._stepped = False

    def state_dict(self) -> dict[str, Any]:
        self.settle()
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


# --- the choice -----------------------------------------------------------------------------------


def wanted_dtype(wanted: Any, device: torch.device) -> torch.dtype | None:
    """Of `wanted`: False, which is None; True, which is the best that the device can; "fp16" or
    "bf16". A CPU has bf16 alone."""
    if wanted in _OFF:
        return None
    if wanted is not True and wanted not in _DTYPES:
        raise ValueError(f"mixed precision is True, False, 'fp16' or 'bf16', not {wanted!r}")
    if device.type == "cuda":
        return _best_of_gpu(device) if wanted is True else _DTYPES[wanted]
    if wanted is not True and _DTYPES[wanted] is torch.float16:
        registry.current().tell("mixed precision: fp16 is for GPUs; this run computes in bf16")
    return torch.bfloat16


def make(dtype: torch.dtype, device: torch.device) -> Amp | None:
    """None where the CPU would die of it: the run computes in float32, after a warning."""
    if device.type == "cpu" and (why := cpu_trap()):
        registry.current().tell(f"mixed precision: {why}; this run computes in float32")
        return None
    return Amp(device, dtype)


def _best_of_gpu(device: torch.device) -> torch.dtype:
    """bf16 needs no scaling; GPUs before Ampere only emulate it."""
    new = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if new else torch.float16


def cpu_trap() -> str | None:
    """Why bf16 would end this process, or None. Where the CPU misreports AMX oneDNN must be told
    before it is loaded: in workers manta does, in plain code the user must."""
    cure = _manta.amx_cure()
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "ALL"
    if cure is None or not ("AMX" in isa.upper() or isa.upper() in ("ALL", "DEFAULT")):
        return None
    return f"this CPU misreports AMX, and bf16 needs {cure} in the environment"


# --- the model ------------------------------------------------------------------------------------


class AmpForward:
    """A model's forward in half precision, with float32 outputs. It lies in the model itself, which
    so keeps its type, its attributes and its state_dict. A copy has one too; a pickle, which may be
    read where there is no manta, has the plain forward."""

    def __init__(self, inner: Callable[..., Any], device_type: str, dtype: torch.dtype):
        self.inner = inner
        self.device_type = device_type
        self.dtype = dtype
        functools.update_wrapper(self, inner)  # its signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self.device_type, dtype=self.dtype):
            made = self.inner(*args, **kwargs)
        return nest.to_float(made)

    def __deepcopy__(self, memo: dict[int, Any]) -> AmpForward:
        return AmpForward(copy.deepcopy(self.inner, memo), self.device_type, self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, ((self.inner,), 0)


def cast_forward(amp: Amp, model: torch.nn.Module) -> None:
    if not isinstance(model.forward, AmpForward):
        model.forward = AmpForward(model.forward, amp.device.type, amp.dtype)


# --- the optimizer --------------------------------------------------------------------------------


def route_step(amp: Amp, optimizer: torch.optim.Optimizer) -> None:
    """optimizer.step() goes through the scaler. Changed in place: schedulers, hooks and isinstance
    want the optimizer itself."""
    if getattr(optimizer.step, "_manta_amp", None) is amp:
        return
    inner = optimizer.step
    seen = amp.backwards
    inside = False

    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        nonlocal seen, inside
        if not amp.backwards:
            registry.current().tell("fp16 without scaling loses small gradients: call "
                                    "backward(loss) instead of loss.backward()")
        if inside or seen == amp.backwards:  # the scaler's own call, or gradients without a scale
            return inner(*args, **kwargs)
        seen, inside = amp.backwards, True
        try:
            return amp.step(optimizer, *args, **kwargs)
        finally:
            inside = False

    step._manta_amp = amp  # type: ignore[attr-defined]
    if hasattr(inner, "_wrapped_by_lr_sched"):
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = types.MethodType(step, optimizer)

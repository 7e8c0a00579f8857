# SPDX-License-Identifier: Apache-2.0
"""How a model is divided among workers: what the arguments of prepare_model and accelerate say."""

from __future__ import annotations

from typing import Any

UNSAID: Any = object()
_KNOWN = ("ddp", "fsdp", None)
_HINTS = {
    "fsdp2": "'fsdp' is FSDP2, fully_shard",
    "fully_shard": "'fsdp' is FSDP2, fully_shard",
    "ddp_find_unused_parameters_true": "'ddp' with {'find_unused_parameters': True}",
    "deepspeed": "'fsdp' divides weights, gradients and optimizer states as ZeRO does",
    "auto": "leave the argument out: that is 'ddp'",
    "none": "None, without quotes",
}


def choose(wrap_ddp: Any, ddp_kwargs: Any, strategy: Any,
           kwargs: Any) -> tuple[str | None, dict[str, Any]]:
    """("ddp", "fsdp" or None; the options for it). The third and fourth argument of prepare_model
    by position may also be those of Ray: the strategy and its options."""
    if wrap_ddp is None or isinstance(wrap_ddp, str):
        strategy, kwargs = _moved("parallel_strategy", wrap_ddp, strategy), kwargs or ddp_kwargs
        wrap_ddp, ddp_kwargs = True, None
    if strategy is UNSAID:
        strategy = "ddp" if wrap_ddp else None
    elif strategy not in _KNOWN:
        hint = _HINTS.get(str(strategy).lower(), "leave the argument out for 'ddp'")
        raise ValueError(f"the strategy is 'ddp', 'fsdp' or None, not {strategy!r}\nhint: {hint}")
    elif strategy is not None and not wrap_ddp:
        raise ValueError(f"wrap_ddp=False and the strategy {strategy!r} exclude each other\nhint: "
                         f"leave wrap_ddp out; the strategy None wraps nothing")
    if strategy == "fsdp" and ddp_kwargs:
        raise ValueError("ddp_kwargs are arguments of DistributedDataParallel, and the strategy is "
                         "'fsdp'\nhint: parallel_strategy_kwargs of prepare_model, strategy_kwargs "
                         "of accelerate")
    if ddp_kwargs and kwargs:
        raise ValueError("ddp_kwargs and the options of the strategy are the same for 'ddp': give "
                         "one of them")
    return strategy, dict(kwargs or ddp_kwargs or {})


def _moved(name: str, third: Any, said: Any) -> Any:
    if said not in (UNSAID, third):
        raise TypeError(f"prepare_model: {name} was given twice, {third!r} and {said!r}")
    return third

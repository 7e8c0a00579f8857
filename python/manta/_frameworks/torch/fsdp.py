# SPDX-License-Identifier: Apache-2.0
"""Fully sharded data parallelism (FSDP2): every rank keeps a piece of each weight, of its gradient
and of what the optimizer knows of it, and a block's weights are whole only while it computes.

(1) The model is changed in place; its weights become DTensors, so an optimizer that was made
    before has to be told: prepare_optimizer does.
(2) All ranks begin with rank 0's weights, as in DistributedDataParallel.
(3) Blocks are cut one after the other: a GPU never holds the whole model.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (CPUOffloadPolicy, FSDPModule, FullyShardedDataParallel,
                                    MixedPrecisionPolicy, fully_shard)
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DataParallel, DistributedDataParallel

from manta._frameworks.torch import blocks
from manta._frameworks.torch.state import cutting

_LEAST = 100_000  # weights: a block of fewer is not worth a collective of its own
_OURS = ("wrap", "min_num_params", "cpu_offload", "sync_module_states")
_TORCHS = ("mesh", "reshard_after_forward", "shard_placement_fn", "mp_policy", "offload_policy",
           "ignored_params", "dp_mesh_dims")
_NEEDLESS = "leave it out: it is always so"
_OF_FSDP1 = {
    "auto_wrap_policy": "wrap=Block: a class, its name, several of them, or a function of a module",
    "sharding_strategy": "reshard_after_forward=True is FULL_SHARD, False is SHARD_GRAD_OP; a mesh "
                         "of two dimensions is HYBRID_SHARD",
    "mixed_precision": "mp_policy=MixedPrecisionPolicy(…) of torch.distributed.fsdp, or "
                       "accelerate(model, strategy='fsdp', mixed_precision=…)",
    "process_group": "mesh=init_device_mesh(…)", "device_mesh": "mesh",
    "ignored_modules": "ignored_params, a set of parameters",
    "ignored_states": "ignored_params, a set of parameters",
    "param_init_fn": "leave it out: modules on the device 'meta' are initialised by their "
                     "reset_parameters()",
    **dict.fromkeys(("device_id", "use_orig_params", "backward_prefetch", "forward_prefetch",
                     "limit_all_gathers"), _NEEDLESS),
}


@dataclass
class Options:
    """Of parallel_strategy_kwargs: wrap, min_num_params, cpu_offload and sync_module_states are
    manta's, `torch` goes to fully_shard as it is."""
    torch: dict[str, Any]
    wrap: Any = None
    min_num_params: int | None = None
    cpu_offload: Any = False
    sync_module_states: bool = True

    @classmethod
    def of(cls, given: dict[str, Any]) -> Options:
        for name in given:
            if name not in (*_OURS, *_TORCHS):
                hint = _OF_FSDP1.get(name, f"they are {', '.join((*_OURS, *_TORCHS))}")
                raise TypeError(f"the strategy 'fsdp' has no option {name!r}\nhint: {hint}")
        made = cls({k: v for k, v in given.items() if k in _TORCHS},
                   **{k: v for k, v in given.items() if k in _OURS})
        if getattr(made.cpu_offload, "offload_params", made.cpu_offload):
            if "offload_policy" in made.torch:
                raise TypeError("cpu_offload and offload_policy exclude each other")
            made.torch["offload_policy"] = CPUOffloadPolicy()
        return made


def is_sharded(model: torch.nn.Module) -> bool:
    return isinstance(model, FSDPModule)


def check(model: torch.nn.Module) -> None:
    """What cannot be sharded."""
    if isinstance(model, FullyShardedDataParallel):
        raise ValueError("the model is in FullyShardedDataParallel, the first FSDP; the strategy "
                         "'fsdp' is the second\nhint: give prepare_model the plain model")
    if isinstance(model, (DistributedDataParallel, DataParallel)):
        raise ValueError(f"the model is in {type(model).__name__} already, and FSDP takes its "
                         f"place\nhint: give prepare_model the plain model")
    if isinstance(model, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        raise ValueError(f"FSDP gathers a model's weights when it is called, and a "
                         f"{type(model).__name__} never is\nhint: make it a part of a model")


# --- cutting --------------------------------------------------------------------------------------


def shard(model: torch.nn.Module, device: torch.device, dtype: torch.dtype | None,
          given: dict[str, Any], again: Any = False) -> dict[int, tuple[Any, Any]]:
    """Cuts the model among all ranks. dtype: of the computation, None: that of the weights. again:
    activation_checkpointing. What became of its weights, for `switch`."""
    options = Options.of(given)
    found = _units(model, options)
    told = found if options.wrap is not None else []
    made = blocks.recompute(model, blocks.to_recompute(model, again, told))
    hollow = any(p.is_meta for p in model.parameters())
    if options.sync_module_states and not hollow:
        _send_from_rank_0(model, device)
    before = dict(model.named_parameters())
    cut = {"mesh": init_device_mesh(device.type, (dist.get_world_size(),)), **options.torch}
    if dist.get_world_size() == 1:
        cut.setdefault("reshard_after_forward", False)  # that would free nothing
    _cut_norms(model, found, dtype, cut)
    for block in found:
        fully_shard(made.get(block, block), **_policy(dtype, cut, outermost=False))
    fully_shard(model, **_policy(dtype, cut, outermost=True))
    if hollow:
        _fill(model, torch.device("cpu") if "offload_policy" in cut else device)
    after = dict(model.named_parameters())
    return {id(old): (weakref.ref(old), weakref.ref(after[name])) for name, old in before.items()}


def _units(model: torch.nn.Module, options: Options) -> list[torch.nn.Module]:
    """What is gathered for itself, inner parts first. The rest belongs to the whole model."""
    if options.wrap is not None:
        least = options.min_num_params or 0
        found = blocks.chosen(model, options.wrap)
    else:
        least = _LEAST if options.min_num_params is None else options.min_num_params
        found = blocks.repeated(model) or blocks.large(model, max(least, 1))
    return [b for b in blocks.separate(model, found) if blocks.size(b) >= least]


def _policy(dtype: torch.dtype | None, cut: dict[str, Any], outermost: bool) -> dict[str, Any]:
    """Computes in dtype, adds gradients in float32, gives the caller float32."""
    if dtype is None or "mp_policy" in cut:
        return cut
    out = torch.float32 if outermost else None
    return {**cut, "mp_policy": MixedPrecisionPolicy(dtype, torch.float32, out)}


def _cut_norms(model: torch.nn.Module, found: list[torch.nn.Module], dtype: torch.dtype | None,
               cut: dict[str, Any]) -> None:
    """A batch norm has float32 statistics, and wants its weights in the same type."""
    if dtype is None or "mp_policy" in cut:
        return
    for m in model.modules():
        if isinstance(m, _BatchNorm) and m not in found and m is not model:
            fully_shard(m, **cut, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))


def _send_from_rank_0(model: torch.nn.Module, device: torch.device) -> None:
    """Through the device: a process group may have nothing for host memory."""
    with torch.no_grad():
        for t in itertools.chain(model.parameters(), model.buffers()):
            if not isinstance(t, DTensor):
                here = t.detach().to(device).contiguous()
                dist.broadcast(here, 0)
                if here.data_ptr() != t.data_ptr():
                    t.copy_(here)


def _fill(model: torch.nn.Module, device: torch.device) -> None:
    """Memory for a model that was made on the device "meta", and first values by the modules' own
    reset_parameters(). On a CPU each rank draws its piece from numbers of its own."""
    model.to_empty(device=device)
    with torch.random.fork_rng(devices=[]):
        if device.type == "cpu":
            torch.manual_seed(torch.initial_seed() + dist.get_rank())
        for name, m in model.named_modules():
            own = itertools.chain(m.parameters(recurse=False), m.buffers(recurse=False))
            if not any(True for _ in own):
                continue
            if not callable(reset := getattr(m, "reset_parameters", None)):
                raise ValueError(f"the model was made on the device 'meta', and its part "
                                 f"{name or 'itself'!r} ({type(m).__name__}) has no "
                                 f"reset_parameters() that would give it values\nhint: add one, or "
                                 f"make the model on the CPU")
            reset()


# --- the optimizer --------------------------------------------------------------------------------


def switch(optimizer: torch.optim.Optimizer, replaced: dict[int, tuple[Any, Any]]) -> None:
    """An optimizer that was made of the weights before they were cut trains the pieces."""
    def now(p: Any) -> Any:
        old, new = replaced.get(id(p), (None, None))
        return p if old is None or old() is not p else new()

    for group in optimizer.param_groups:
        group["params"] = [now(p) for p in group["params"]]
    for old in [p for p in optimizer.state if now(p) is not p]:
        new = now(old)
        optimizer.state[new] = {key: cutting.like(value, new)
                                for key, value in optimizer.state.pop(old).items()}

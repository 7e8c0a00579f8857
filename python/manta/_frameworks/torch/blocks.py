# SPDX-License-Identifier: Apache-2.0
"""The repeated parts of a model, such as the layers of a transformer: what FSDP gathers one at a
time, and what is computed again instead of being remembered."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Iterator

import torch

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_WITHOUT_FORWARD = (torch.nn.ModuleList, torch.nn.ModuleDict)


# --- which ----------------------------------------------------------------------------------------


def chosen(model: torch.nn.Module, wanted: Any) -> list[torch.nn.Module]:
    """Those of a class, of the name of one, of several of them, or those of which a function says
    True; a part comes before what it lies in. The model itself is none."""
    if isinstance(wanted, torch.nn.Module):
        raise TypeError(f"blocks are chosen by their class, not by an object of it\nhint: "
                        f"{type(wanted).__name__}")
    if callable(wanted) and not isinstance(wanted, type):
        found = [m for m in model.modules() if m is not model and wanted(m)]
    else:
        found = _of_classes(model, wanted)
    for m in found:
        if isinstance(m, _WITHOUT_FORWARD):
            raise ValueError(f"a {type(m).__name__} is never called, so it is no block\nhint: "
                             f"choose the class of its elements")
    return list(reversed(found))


def _of_classes(model: torch.nn.Module, wanted: Any) -> list[torch.nn.Module]:
    several = wanted if isinstance(wanted, (list, tuple, set, frozenset)) else (wanted,)
    for one in several:
        if not isinstance(one, (str, type)):
            raise TypeError(f"blocks are chosen by a class, its name, several of them, or a "
                            f"function of a module, not by {one!r}")
    found = [m for m in model.modules() if m is not model and _is_one(m, several)]
    if not found:
        inside = sorted({type(m).__name__ for m in model.modules() if m is not model})
        said = " or ".join(getattr(one, "__name__", str(one)) for one in several)
        raise ValueError(f"the model has no block of class {said}\nhint: it has "
                         f"{', '.join(inside) or 'no parts'}")
    return found


def _is_one(m: torch.nn.Module, several: Iterable[Any]) -> bool:
    return any(type(m).__name__ == one if isinstance(one, str) else isinstance(m, one)
               for one in several)


def repeated(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The outermost parts that a container has several of, of one class, each with parts of its
    own. A model of Hugging Face's names their class itself."""
    names = {n for m in model.modules() for n in getattr(m, "_no_split_modules", None) or ()}
    if named := [m for m in model.modules() if m is not model and type(m).__name__ in names]:
        return list(reversed(named))
    return list(reversed(list(_repeated(model))))


def _repeated(m: torch.nn.Module) -> Iterator[torch.nn.Module]:
    count = Counter(type(child) for child in m.children() if any(child.children()))
    for child in m.children():
        inner = list(_repeated(child))
        often = isinstance(m, _CONTAINERS) and count[type(child)] > 1
        if often and not (isinstance(child, _CONTAINERS) and inner) and not isinstance(
                child, _WITHOUT_FORWARD):
            yield child
        else:
            yield from inner


def large(model: torch.nn.Module, least: int) -> list[torch.nn.Module]:
    """Layers without parts that have so many weights."""
    return [m for m in model.modules() if m is not model and not any(m.children())
            and size(m) >= least]


def size(m: torch.nn.Module) -> int:
    return sum(p.numel() for p in m.parameters())


def separate(model: torch.nn.Module, found: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """Without those that share a weight with something outside of them: tied weights are of the
    whole model."""
    owners = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))

    def is_separate(block: torch.nn.Module) -> bool:
        own = Counter(id(p) for m in block.modules() for p in m.parameters(recurse=False))
        return all(owners[p] == n for p, n in own.items())

    return [block for block in found if is_separate(block)]


# --- computing them again -------------------------------------------------------------------------


def recompute(model: torch.nn.Module,
              found: list[torch.nn.Module]) -> dict[torch.nn.Module, torch.nn.Module]:
    """Of these blocks only the inputs are kept for the backward pass, which computes the rest
    again. What takes their places in the model, by block."""
    if not found:
        return {}
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapper
    inside = {m for block in found for m in block.modules() if m is not block}
    made = {block: wrapper.checkpoint_wrapper(block) for block in found
            if block not in inside and not isinstance(block, wrapper.CheckpointWrapper)}
    for parent in list(model.modules()):
        if not isinstance(parent, wrapper.CheckpointWrapper):
            for key, child in parent._modules.items():
                if child in made:
                    parent._modules[key] = made[child]
    return made


def to_recompute(model: torch.nn.Module, wanted: Any,
                 sharded: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """What `activation_checkpointing` stands for; True: the blocks that FSDP was told of, else the
    repeated ones."""
    if not wanted:
        return []
    if wanted is not True:
        return chosen(model, wanted)
    if not (found := sharded or repeated(model)):
        raise ValueError("activation_checkpointing=True: the model has no repeated blocks\nhint: "
                         "activation_checkpointing=Block names the class of its blocks")
    return found

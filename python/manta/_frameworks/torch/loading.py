# SPDX-License-Identifier: Apache-2.0
"""A checkpoint put back into the objects whose state it holds, whatever number of ranks saved it
and whichever way the model is divided now."""

from __future__ import annotations

import copy
from typing import Any

import torch

from manta import _manta, _state
from manta._frameworks.torch.prepare import unwrap
from manta._frameworks.torch.state import cutting


def load_checkpoint_into(*args: Any, **objects: Any) -> dict[str, Any] | None:
    """Loads the newest checkpoint into objects that have a load_state_dict, each by the name under
    which its state was saved. Gives the other entries, or None if there is no checkpoint yet.

        rest = load_checkpoint_into(model=model, optimizer=optimizer)
        first = rest["epoch"] + 1 if rest else 0
        …
        save_checkpoint(model=model.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch,
                        sharded=True)

    Of a sharded checkpoint a model in FSDP gets its pieces of now, also if another number of ranks
    saved it; a rank reads no more than those. What is not in pieces is this rank's own part, or
    rank 0's if the number of ranks has changed. All ranks call it.
    """
    if args or not objects:
        raise TypeError("load_checkpoint_into takes objects by the names of their entries\nhint: "
                        "load_checkpoint_into(model=model, optimizer=optimizer)")
    for name, o in objects.items():
        if not hasattr(o, "load_state_dict"):
            raise TypeError(f"load_checkpoint_into({name}=…): a {type(o).__name__} has no "
                            f"load_state_dict()")
    if not _manta.in_session() or (found := own_part()) is None:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"the checkpoint is a {type(found).__name__} without names\nhint: "
                         f"save_checkpoint(model=model.state_dict(), …)")
    for name in objects:
        if name not in found:
            raise ValueError(f"the checkpoint has no entry {name!r}; it has "
                             f"{', '.join(map(repr, found))}")
    for name, o in objects.items():
        load(o, found[name])
    return {key: cutting.whole(value) for key, value in found.items() if key not in objects}


def own_part() -> Any:
    """Of the newest checkpoint, or None: if ranks have saved parts, this one's, or rank 0's if they
    were more or fewer. Tensors in pieces are for `load`."""
    found = _state.load(lazy=True)
    if not isinstance(found, list) or not found:
        return found
    rank, size, *_ = _manta.place()
    return found[rank] if len(found) == size else found[0]


def load(o: Any, state: Any) -> None:
    """One object."""
    if isinstance(o, torch.nn.Module):
        model = unwrap(o)
        have = model.state_dict()
        filled = copy.copy(state)  # with the versions of its modules
        for key, value in state.items():
            filled[key] = cutting.like(value, have.get(key))
        model.load_state_dict(filled)
    elif isinstance(o, torch.optim.Optimizer):
        o.load_state_dict(_of_optimizer(o, state))
    else:
        o.load_state_dict(cutting.whole(state))


def _of_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """The state with tensors cut as the weights are that they belong to: by number, in the order of
    the groups."""
    numbers = [n for group in state["param_groups"] for n in group["params"]]
    if any(isinstance(n, str) for n in numbers):
        raise ValueError("this state of an optimizer has names, as get_optimizer_state_dict() "
                         "makes them\nhint: save optimizer.state_dict(), or load it by "
                         "set_optimizer_state_dict(model, optimizer, …)")
    weights = dict(zip(numbers, (p for g in optimizer.param_groups for p in g["params"])))
    cut = {n: {key: cutting.like(value, weights.get(n)) for key, value in one.items()}
           for n, one in state["state"].items()}
    return {**cutting.whole({k: v for k, v in state.items() if k != "state"}), "state": cut}

# SPDX-License-Identifier: Apache-2.0
"""The state of everything that was prepared, for checkpoint="auto"."""

from __future__ import annotations

from typing import Any

from manta._frameworks.torch import loading, registry, seed
from manta._frameworks.torch.state import pieces


def collect() -> dict[str, Any]:
    """What a new call of the train function needs to go on. The tensors are the live ones: to be
    copied before the next step."""
    known = registry.current()
    return {"models": [model.state_dict() for model in known.models],
            "optimizers": [optimizer.state_dict() for optimizer in known.optimizers],
            "amp": known.amp.state_dict() if known.amp else {},
            "random": seed.rng_state()}


def is_in_pieces() -> bool:
    """Whether each rank has only its part of it, as with FSDP."""
    return any(pieces.is_dtensor(p) for model in registry.current().models
               for p in model.parameters())


def restore(state: dict[str, Any]) -> None:
    """Call it when everything has been prepared again, in the same order: before the first pass."""
    known = registry.current()
    for name, ready in (("models", known.models), ("optimizers", known.optimizers)):
        if len(ready) != len(state[name]):
            raise ValueError(f"the checkpoint has {len(state[name])} {name}, this run has prepared "
                             f"{len(ready)}")
    for part, one in zip((*known.models, *known.optimizers),
                         (*state["models"], *state["optimizers"])):
        loading.load(part, one)
    if known.amp:
        known.amp.load_state_dict(state["amp"])
    seed.set_rng_state(state["random"])


def is_empty() -> bool:
    """Whether nothing was prepared that has a state."""
    known = registry.current()
    return not known.models and not known.optimizers

# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that holds a model of torch."""

from __future__ import annotations

from typing import Any, Self

import torch

from manta._front.fit.checkpoint import PREPROCESSOR, Checkpoint
from manta._names import public
from manta._state import clean

MODEL = "model"


@public
class TorchCheckpoint(Checkpoint):
    """TorchCheckpoint.from_model(model) or .from_state_dict(model.state_dict()); get_model() gives
    the model back. TorchCheckpoint.from_checkpoint(result.checkpoint) reads one of a run."""

    @classmethod
    def from_state_dict(cls, state_dict: dict[str, Any], *, preprocessor: Any = None) -> Self:
        """The weights alone: get_model(model) needs a model to load them into."""
        return cls._with(state_dict, preprocessor)

    @classmethod
    def from_model(cls, model: torch.nn.Module, *, preprocessor: Any = None) -> Self:
        """The whole model, unwrapped."""
        return cls._with(model, preprocessor)

    @classmethod
    def _with(cls, model: Any, preprocessor: Any) -> Self:
        return cls.from_dict({PREPROCESSOR: preprocessor, MODEL: clean(model)})

    def get_model(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """The model, or `model` with the weights loaded into it."""
        data = self.to_dict()
        if MODEL not in data:
            raise ValueError(f"the checkpoint has no entry {MODEL!r}, but "
                             f"{', '.join(map(str, data))}\nhint: report("
                             f"{{…}}, checkpoint=TorchCheckpoint.from_state_dict(…))")
        saved = data[MODEL]
        if isinstance(saved, torch.nn.Module):
            return saved
        if model is None:
            raise ValueError("the checkpoint holds a state_dict\n"
                             "hint: get_model(model), a model to load it into")
        model.load_state_dict(saved)
        return model

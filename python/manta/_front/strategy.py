# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints of a run are kept on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manta._names import arguments, public


@public
@dataclass
class CheckpointStrategy:
    """num_to_keep: how many (None: all); with an attribute, the name of a reported metric, those
    with the best score. checkpoint_score_order: "max" or "min"."""
    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"

    def __post_init__(self) -> None:
        n = self.num_to_keep
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
            raise ValueError(f"num_to_keep must be an int >= 1 or None, not {n!r}")
        attribute = self.checkpoint_score_attribute
        if attribute is not None and not (isinstance(attribute, str) and attribute):
            raise TypeError(f"checkpoint_score_attribute must be the name of a reported metric, "
                            f"not {attribute!r}")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(f"checkpoint_score_order must be 'max' or 'min', not "
                             f"{self.checkpoint_score_order!r}")

    @staticmethod
    def checked(given: Any) -> CheckpointStrategy | None:
        """What a run is given."""
        if given is None or isinstance(given, CheckpointStrategy):
            return given
        hint = f"CheckpointStrategy(**{given!r})" if isinstance(given, dict) else \
            "CheckpointStrategy(num_to_keep=2)"
        raise TypeError(f"checkpoint_strategy must be a CheckpointStrategy, not {given!r}\n"
                        f"hint: {hint}")

    def options(self) -> dict[str, Any]:
        """As libmanta's run has them. The newest one is always kept: a revival needs it."""
        out: dict[str, Any] = {"keep_last": -1 if self.num_to_keep is None else self.num_to_keep}
        if self.checkpoint_score_attribute is not None:
            out |= {"score": self.checkpoint_score_attribute,
                    "score_min": self.checkpoint_score_order == "min"}
            if self.num_to_keep is not None:
                out |= {"keep_last": 1, "keep_best": self.num_to_keep}
        return out


CheckpointStrategy.__init__ = arguments(CheckpointStrategy.__init__)  # type: ignore[method-assign]

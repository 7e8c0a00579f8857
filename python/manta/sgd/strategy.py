# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints of a run are kept on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(f"checkpoint_score_order must be 'max' or 'min', not "
                             f"{self.checkpoint_score_order!r}")

    def options(self) -> dict[str, Any]:
        """As libmanta's run has them. The newest one is always kept: a revival needs it."""
        out: dict[str, Any] = {"keep_last": -1 if self.num_to_keep is None else self.num_to_keep}
        if self.checkpoint_score_attribute is not None:
            out |= {"score": self.checkpoint_score_attribute,
                    "score_min": self.checkpoint_score_order == "min"}
            if self.num_to_keep is not None:
                out |= {"keep_last": 1, "keep_best": self.num_to_keep}
        return out

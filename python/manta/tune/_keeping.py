# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints of a trial stay on disk, in the words of several versions of the API."""

from __future__ import annotations

from typing import Any

from manta._front.fit.configs import CheckpointConfig

# What rises from report to report: the best of them are the newest.
_RISING = ("training_iteration", "_training_iteration", "time_total_s", "timestamp")


def keeping(number: Any, attribute: Any, config: CheckpointConfig | None) -> dict[str, Any]:
    """As libmanta takes it. number, attribute: keep_checkpoints_num and checkpoint_score_attr, a
    metric, or "min-" and a metric; config says the same. If nobody says anything, the newest and
    the best by the metric of the experiment stay."""
    if config is None and number is None and attribute is None:
        return {}
    if config is None:
        order = "min" if str(attribute).startswith("min-") else "max"
        config = CheckpointConfig(_number(number), str(attribute).removeprefix("min-")
                                  if attribute else None, order)
        if number is None:
            config.num_to_keep = 1  # the best one
    elif number is not None or attribute is not None:
        given = "checkpoint_score_attr" if number is None else "keep_checkpoints_num"
        raise ValueError(f"{given} and checkpoint_config both say what is kept\nhint: "
                         f"CheckpointConfig(num_to_keep=…, checkpoint_score_attribute=…)")
    if config.checkpoint_score_attribute not in _RISING:
        return config.strategy().options()
    if config.checkpoint_score_order == "min":
        raise ValueError(f"the checkpoints with the least {config.checkpoint_score_attribute} are "
                         f"the oldest: a trial that is tried again needs the newest\nhint: name a "
                         f"metric that trials report")
    return CheckpointConfig(config.num_to_keep).strategy().options()


def _number(given: Any) -> int | None:
    if given is None or isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    raise ValueError(f"keep_checkpoints_num must be an int >= 1, or None, not "
                     f"{given!r}")

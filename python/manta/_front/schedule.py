# SPDX-License-Identifier: Apache-2.0
"""When a learning rate scheduler steps, and what train_epoch finds in `info`: the words for it, by
the names of ray.util.sgd.torch.constants."""

__all__ = ["NCCL_TIMEOUT_S", "NUM_STEPS", "SCHEDULER_STEP", "SCHEDULER_STEP_BATCH",
           "SCHEDULER_STEP_EPOCH", "SCHEDULER_STEP_MANUAL", "USE_FP16", "VALID_SCHEDULER_STEP"]

# Of the argument scheduler_step_freq.
SCHEDULER_STEP_BATCH = "batch"
SCHEDULER_STEP_EPOCH = "epoch"
SCHEDULER_STEP_MANUAL = "manual"
VALID_SCHEDULER_STEP = {SCHEDULER_STEP_BATCH, SCHEDULER_STEP_EPOCH, SCHEDULER_STEP_MANUAL}

# Keys of `info`.
NUM_STEPS = "__num_steps__"
SCHEDULER_STEP = "scheduler_step"
USE_FP16 = "__use_fp16__"

NCCL_TIMEOUT_S = 1800


def __dir__() -> list[str]:
    return __all__


def check(step_freq: object) -> None:
    """Of the argument: one of the words, or None where no scheduler is registered."""
    if step_freq is not None and step_freq not in VALID_SCHEDULER_STEP:
        raise ValueError(f"scheduler_step_freq must be one of "
                         f"{', '.join(map(repr, sorted(VALID_SCHEDULER_STEP)))}, or None, not "
                         f"{step_freq!r}")

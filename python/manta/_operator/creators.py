# SPDX-License-Identifier: Apache-2.0
"""The oldest trainer of operators: functions that make model, data, optimizer and loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from manta._names import arguments
from manta._operator.trainer import TorchTrainer

# What a metric was called before; both are there.
_EARLIER = {"train_loss": ("mean_train_loss",), "val_loss": ("mean_val_loss", "validation_loss"),
            "val_accuracy": ("mean_accuracy", "mean_val_accuracy")}


class PyTorchTrainer(TorchTrainer):
    """The same as TorchTrainer, from functions. data_creator returns loaders, or datasets: these
    are read in batches of batch_size / num_replicas, with the options of dataloader_config."""

    @arguments
    def __init__(self, model_creator: Callable[..., Any], data_creator: Callable[..., Any],
                 optimizer_creator: Callable[..., Any], loss_creator: Any,
                 scheduler_creator: Callable[..., Any] | None = None,
                 training_operator_cls: Any = None,
                 initialization_hook: Callable[[], Any] | None = None,
                 config: dict[str, Any] | None = None,
                 dataloader_config: dict[str, Any] | None = None, num_replicas: int | None = None,
                 use_gpu: bool | str = False, batch_size: int = 16, backend: Any = "auto",
                 use_fp16: Any = False, apex_args: dict[str, Any] | None = None,
                 scheduler_step_freq: str = "batch", num_workers: int | None = None,
                 num_cpus_per_worker: float | None = None, timeout_s: float = 1800,
                 use_tqdm: bool = False, logdir: str | Path | None = None):
        from manta._frameworks.torch import operator
        workers = num_workers or num_replicas or 1
        loader = {"batch_size": max(1, batch_size // workers), **(dataloader_config or {})}
        made = operator.operator_of(
            operator.Creators(model_creator, optimizer_creator, data_creator, loss_creator,
                              scheduler_creator, loader=loader), training_operator_cls)
        super().__init__(training_operator_cls=made, initialization_hook=initialization_hook,
                         config=config, num_workers=workers, use_gpu=use_gpu, backend=backend,
                         num_cpus_per_worker=num_cpus_per_worker, timeout_s=timeout_s,
                         use_fp16=use_fp16, use_tqdm=use_tqdm, logdir=logdir,
                         scheduler_step_freq=scheduler_step_freq)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As TorchTrainer.train(), which has the arguments; metrics also by their earlier
        names."""
        return _with_earlier_names(super().train(*args, **kwargs))

    def validate(self, *args: Any, **kwargs: Any) -> Any:
        return _with_earlier_names(super().validate(*args, **kwargs))


def _with_earlier_names(found: Any) -> Any:
    if isinstance(found, list):
        return [_with_earlier_names(one) for one in found]
    earlier = {old: found[name] for name, olds in _EARLIER.items() if name in found for old in olds}
    return {**found, **earlier}

# SPDX-License-Identifier: Apache-2.0
"""TensorFlow by the names of Ray Train: the trainer, and what its train function calls. Importing
this package does not import TensorFlow; asking it for a function does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Callable

from manta._frameworks.tensorflow.checkpoint import TensorflowCheckpoint
from manta._frameworks.tensorflow.config import TensorflowConfig
from manta._front import refuse as _refuse
from manta._front.fit.trainer import DataParallelTrainer
from manta._names import arguments as _arguments

if TYPE_CHECKING:
    from manta._frameworks.tensorflow.dataset import prepare_dataset_shard as prepare_dataset_shard

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer"]

_LATER = {"prepare_dataset_shard": "manta._frameworks.tensorflow.dataset"}


class TensorflowTrainer(DataParallelTrainer):
    """TensorflowTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit() runs the function
    on workers that find TF_CONFIG. tensorflow_config: a TensorflowConfig."""

    _framework = "tensorflow"

    @_arguments
    def __init__(self, train_loop_per_worker: Callable[..., Any], *,
                 train_loop_config: Any = None, tensorflow_config: TensorflowConfig | None = None,
                 scaling_config: Any = None, run_config: Any = None,
                 datasets: dict[str, Any] | None = None, dataset_config: Any = None,
                 data_config: Any = None, resume_from_checkpoint: Any = None,
                 preprocessor: Any = None, metadata: dict[str, Any] | None = None):
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config,
                         backend_config=tensorflow_config, scaling_config=scaling_config,
                         run_config=run_config, datasets=datasets, dataset_config=dataset_config,
                         data_config=data_config, resume_from_checkpoint=resume_from_checkpoint,
                         preprocessor=preprocessor, metadata=metadata)


def __getattr__(name: str) -> Any:
    if name == "keras":
        return importlib.import_module(f"{__name__}.keras")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    _refuse(__name__, name, [*__all__, *_LATER, "keras"])


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "keras"})

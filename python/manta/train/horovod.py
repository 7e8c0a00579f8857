# SPDX-License-Identifier: Apache-2.0
"""Horovod by the names of Ray Train. Importing this module does not import Horovod: a train
function imports horovod.torch and calls hvd.init() itself."""

from __future__ import annotations

from typing import Any, Callable, NoReturn

from manta._frameworks.horovod.config import HorovodConfig
from manta._front import refuse as _refuse
from manta._front.fit.trainer import DataParallelTrainer
from manta._names import arguments as _arguments

__all__ = ["HorovodConfig", "HorovodTrainer"]
__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


class HorovodTrainer(DataParallelTrainer):
    """HorovodTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit() runs the function on
    workers in which hvd.init() finds the others. horovod_config: a HorovodConfig."""

    _framework = "horovod"

    @_arguments
    def __init__(self, train_loop_per_worker: Callable[..., Any], *,
                 train_loop_config: Any = None, horovod_config: HorovodConfig | None = None,
                 scaling_config: Any = None, run_config: Any = None,
                 datasets: dict[str, Any] | None = None, dataset_config: Any = None,
                 data_config: Any = None, resume_from_checkpoint: Any = None,
                 preprocessor: Any = None, metadata: dict[str, Any] | None = None):
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config,
                         backend_config=horovod_config, scaling_config=scaling_config,
                         run_config=run_config, datasets=datasets, dataset_config=dataset_config,
                         data_config=data_config, resume_from_checkpoint=resume_from_checkpoint,
                         preprocessor=preprocessor, metadata=metadata)


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""PyTorch by the names of Ray Train: the trainer, and what its train function calls. Importing this
module does not import torch; asking it for a function does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from manta._frameworks import functions as _functions
from manta._frameworks.torch.config import TorchConfig
from manta._front import look_up as _look_up
from manta._front.fit.trainer import DataParallelTrainer
from manta._names import arguments as _arguments

if TYPE_CHECKING:
    from manta._frameworks.torch.checkpoint import TorchCheckpoint as TorchCheckpoint
    from manta._frameworks.torch.device import get_device as get_device
    from manta._frameworks.torch.loader import prepare_data_loader as prepare_data_loader
    from manta._frameworks.torch.loading import load_checkpoint_into as load_checkpoint_into
    from manta._frameworks.torch.prepare import accelerate as accelerate
    from manta._frameworks.torch.prepare import backward as backward
    from manta._frameworks.torch.prepare import prepare_model as prepare_model
    from manta._frameworks.torch.prepare import prepare_optimizer as prepare_optimizer
    from manta._frameworks.torch.prepare import unscale as unscale
    from manta._frameworks.torch.seed import enable_reproducibility as enable_reproducibility
    from manta._frameworks.torch.seed import rng_state as rng_state
    from manta._frameworks.torch.seed import set_rng_state as set_rng_state

__all__ = ["TorchCheckpoint", "TorchConfig", "TorchTrainer", "accelerate", "backward",
           "enable_reproducibility", "get_device", "load_checkpoint_into", "prepare_data_loader",
           "prepare_model", "prepare_optimizer", "rng_state", "set_rng_state", "unscale"]
__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


class TorchTrainer(DataParallelTrainer):
    """TorchTrainer(train, train_loop_config={…}, scaling_config=ScalingConfig(num_workers=2)).fit()
    runs the function on workers that have a process group. torch_config = torch_backend: a
    TorchConfig."""

    _framework = "torch"

    @_arguments
    def __init__(self, train_loop_per_worker: Callable[..., Any], *,
                 train_loop_config: Any = None, torch_config: TorchConfig | None = None,
                 torch_backend: TorchConfig | None = None, scaling_config: Any = None,
                 run_config: Any = None, datasets: dict[str, Any] | None = None,
                 dataset_config: Any = None, data_config: Any = None,
                 resume_from_checkpoint: Any = None, preprocessor: Any = None,
                 metadata: dict[str, Any] | None = None):
        if torch_config is not None and torch_backend is not None:
            raise ValueError("torch_config and torch_backend are the same: give one of them")
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config,
                         backend_config=torch_config or torch_backend,
                         scaling_config=scaling_config, run_config=run_config, datasets=datasets,
                         dataset_config=dataset_config, data_config=data_config,
                         resume_from_checkpoint=resume_from_checkpoint, preprocessor=preprocessor,
                         metadata=metadata)


def __getattr__(name: str) -> Any:
    if name == "TorchCheckpoint":
        from manta._frameworks.torch import checkpoint
        return checkpoint.TorchCheckpoint
    return _look_up(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_functions(), "TorchCheckpoint"})

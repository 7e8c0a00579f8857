# SPDX-License-Identifier: Apache-2.0
"""What a train function on PyTorch calls, by the names of Ray Train."""

from typing import NoReturn

from manta._frameworks.torch.config import TorchConfig
from manta._frameworks.torch.device import get_device
from manta._frameworks.torch.loader import prepare_data_loader
from manta._frameworks.torch.prepare import (accelerate, backward, prepare_model,
                                             prepare_optimizer, unscale)
from manta._frameworks.torch.seed import enable_reproducibility, rng_state, set_rng_state
from manta._front import refuse as _refuse

__all__ = ["TorchConfig", "accelerate", "backward", "enable_reproducibility", "get_device",
           "prepare_data_loader", "prepare_model", "prepare_optimizer", "rng_state",
           "set_rng_state", "unscale"]


__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""A process group of gloo, for tests of what rides on one. Its files go where runs go."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import torch.distributed as dist

from manta import _manta
from manta.sgd import Backend, BackendConfig, TorchConfig


class Gloo(Backend):
    def enter(self, backend_config: BackendConfig) -> None:
        assert isinstance(backend_config, GlooConfig)
        rank, size, *_, attempt = _manta.place()
        if size > 1:
            path = Path(os.environ["MANTA_RESULTS"], f"{backend_config.run}-{attempt}")
            dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank,
                                    world_size=size)

    def leave(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()


class GlooConfig(TorchConfig):
    """Pickled once for every run, so that each has a file of its own to meet at."""
    run = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"run": uuid.uuid4().hex}

    @property
    def backend_cls(self) -> type[Backend]:
        return Gloo

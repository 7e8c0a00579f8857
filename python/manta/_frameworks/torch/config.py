# SPDX-License-Identifier: Apache-2.0
"""What the user says about the process group that a train function finds."""

from __future__ import annotations

from dataclasses import dataclass

from manta._frameworks.base import Backend, BackendConfig
from manta._names import arguments, public

_BACKENDS = (None, "manta", "gloo", "nccl")


@public
@dataclass
class TorchConfig(BackendConfig):
    """backend: None or "manta" (for CPU tensors, and NCCL beside it in workers with a GPU each;
    tensors of a GPU that workers share go through host memory), "gloo" or "nccl". timeout_s: how
    long an operation may wait for other ranks; a lost one is known at once. init_method: "env" or
    None, for a rendezvous over manta's own connections; a URL as torch has it instead."""
    backend: str | None = None
    init_method: str | None = "env"
    timeout_s: float = 1800

    framework = "torch"

    def __post_init__(self) -> None:
        if self.backend not in _BACKENDS:
            known = ", ".join(repr(b) for b in _BACKENDS)
            raise ValueError(f"TorchConfig(backend={self.backend!r}): the backends are {known}")
        if self.init_method not in (None, "env", "tcp") and "://" not in str(self.init_method):
            raise ValueError(f"TorchConfig(init_method={self.init_method!r}): it is 'env', None or "
                             f"a URL such as 'tcp://HOST:PORT'")
        if hasattr(self.timeout_s, "total_seconds"):  # a timedelta
            self.timeout_s = self.timeout_s.total_seconds()
        if not isinstance(self.timeout_s, (int, float)) or not self.timeout_s > 0:
            raise ValueError(f"TorchConfig(timeout_s={self.timeout_s!r}): it is a number of "
                             f"seconds > 0")

    @property
    def backend_cls(self) -> type[Backend]:
        from manta._frameworks.torch import Torch
        return Torch


TorchConfig.__init__ = arguments(TorchConfig.__init__)  # type: ignore[method-assign]

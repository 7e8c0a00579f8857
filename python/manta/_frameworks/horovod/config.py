# SPDX-License-Identifier: Apache-2.0
"""What the user says about Horovod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection

from manta._frameworks.base import Backend, BackendConfig
from manta._names import arguments, public


@public
@dataclass
class HorovodConfig(BackendConfig):
    """nics: the network interfaces that ranks may use; None: the one that leads to the other hosts,
    or the loopback on one host. verbose: 0 and 1, Horovod's warnings; 2, what it does; 3, all of
    it. timeout_s: in which hvd.init() has to find the other ranks."""
    nics: Collection[str] | None = None
    verbose: int = 1
    timeout_s: float = 300

    framework = "horovod"

    def __post_init__(self) -> None:
        if isinstance(self.nics, str) or (self.nics is not None and (
                not all(isinstance(n, str) and n for n in self.nics) or not self.nics)):
            raise ValueError(f"HorovodConfig(nics={self.nics!r}): it is a set of interface names "
                             f"such as {{'eth0'}}, or None")
        if isinstance(self.verbose, bool) or self.verbose not in range(4):
            raise ValueError(f"HorovodConfig(verbose={self.verbose!r}): it is a number from 0 to 3")
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float)) or (
                not self.timeout_s >= 1):
            raise ValueError(f"HorovodConfig(timeout_s={self.timeout_s!r}): it is a number of "
                             f"seconds >= 1")

    @property
    def backend_cls(self) -> type[Backend]:
        from manta._frameworks.horovod import Horovod
        return Horovod


HorovodConfig.__init__ = arguments(HorovodConfig.__init__)  # type: ignore[method-assign]

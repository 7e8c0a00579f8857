# SPDX-License-Identifier: Apache-2.0
"""Horovod, over its Gloo controller. Importing this package does not import it, nor do its modules.

`world` is what hvd.init() finds in a worker, `rendezvous` where ranks meet. The tensors are those
of the framework that Horovod was built for, and so are all their functions.
"""

from __future__ import annotations

import glob
import os
from importlib.util import find_spec

from manta import _frameworks
from manta._frameworks.base import BackendConfig, Framework
from manta._frameworks.horovod.config import HorovodConfig

# By framework: the compiled part of Horovod that is there if it was built for it.
_EXTENSIONS = {"torch": "torch/mpi_lib_v2*.so", "tensorflow": "tensorflow/mpi_lib*.so"}
_BUILD = ("HOROVOD_WITH_PYTORCH=1", "HOROVOD_WITH_GLOO=1", "HOROVOD_WITHOUT_MPI=1",
          "HOROVOD_WITHOUT_TENSORFLOW=1", "HOROVOD_WITHOUT_MXNET=1", "HOROVOD_CPU_OPERATIONS=GLOO")


class Horovod(Framework):
    """A rendezvous around every call of a train function, which calls hvd.init() itself."""

    name = "horovod"
    uses_onednn = True
    warms = True

    # --- in the driver ---

    def config(self) -> HorovodConfig:
        return HorovodConfig()

    def how_to_install(self) -> str:
        return (f"{' '.join(_BUILD)} pip install --no-build-isolation horovod, which compiles it "
                f"for the torch that is installed (it needs cmake and a C++ compiler; docs/port.md "
                f"says what torch 2 wants besides)")

    def hint(self, name: str) -> str | None:
        return "'horovod'" if name in ("hvd", "horovod.torch") else None

    # --- where workers are forked ---

    def load(self) -> None:
        built = self._built_for()
        if not built:
            raise ImportError(f"horovod was built for none of {', '.join(_EXTENSIONS)}\n"
                              f"hint: {self.how_to_install()}")
        for name in built:
            _frameworks.get(name).load()
            __import__(f"horovod.{name}")
        import manta._frameworks.horovod.world  # noqa: F401

    def warm(self) -> None:
        for name in self._built_for():
            _frameworks.get(name).warm()

    def _built_for(self) -> list[str]:
        spec = find_spec("horovod")
        where = list(spec.submodule_search_locations or []) if spec else []
        return [name for name, pattern in _EXTENSIONS.items()
                if any(glob.glob(os.path.join(d, pattern)) for d in where)]

    # --- in a worker ---

    def enter(self, backend_config: BackendConfig) -> None:
        from manta._frameworks.horovod import world
        assert isinstance(backend_config, HorovodConfig)
        world.enter(backend_config)

    def leave(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        from manta._frameworks.horovod import world
        world.leave()

    def resume(self, backend_config: BackendConfig) -> None:
        from manta._frameworks.horovod import world
        assert isinstance(backend_config, HorovodConfig)
        world.resume(backend_config)

    def rest(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        from manta._frameworks.horovod import world
        world.rest(error)

    def is_peer_error(self, error: Exception) -> bool:
        return type(error).__name__ == "HorovodInternalError" or super().is_peer_error(error)

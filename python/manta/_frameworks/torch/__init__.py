# SPDX-License-Identifier: Apache-2.0
"""PyTorch. Importing this package does not import torch; importing any module of it but `config`
does.

A train function calls `prepare`, `loader`, `loading`, `amp`, `seed` and `device`, and what they
have prepared is in `registry`; `auto` and `snapshot` save it. `strategy`, `fsdp` and `blocks` are
for large models. `world` is torch.distributed in a worker, `process_group` its backend "manta".
`state` is tensors in checkpoints.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from manta._frameworks.base import BackendConfig, Framework
from manta._frameworks.torch.config import TorchConfig

if TYPE_CHECKING:
    from manta._frameworks.tensors import Tensors

OLDEST = (2, 8)  # before it a group of gloo may hang at its end, and works lose their methods
_FILES = (".pt", ".pth", ".ckpt", ".bin")  # what torch.save leaves
_PEER_WORDS = ("store", "process group")


class Torch(Framework):
    """A new process group around every call of a train function; calls between runs share one."""

    name = "torch"
    synonyms = ("pytorch",)
    uses_onednn = True
    warms = True
    saves_itself = True
    functions = {"accelerate": "prepare", "backward": "prepare", "enable_reproducibility": "seed",
                 "get_device": "device", "load_checkpoint_into": "loading",
                 "prepare_data_loader": "loader", "prepare_model": "prepare",
                 "prepare_optimizer": "prepare", "rng_state": "seed", "set_rng_state": "seed",
                 "unscale": "prepare"}

    # --- in the driver ---

    def config(self) -> TorchConfig:
        return TorchConfig()

    def hint(self, name: str) -> str | None:
        if name in ("gloo", "nccl", "mpi", "manta"):
            return f"TorchConfig(backend={name!r}) in place of the name"
        if "lightning" in name or "accelerate" in name:
            return "'torch': inside its train function Lightning and Accelerate find their ranks"
        return None

    def hint_for_file(self, path: str) -> str | None:
        return f"torch.load({path!r})" if os.path.splitext(path)[1] in _FILES else None

    # --- where workers are forked ---

    def load(self) -> None:
        import torch
        found = tuple(int(n) for n in torch.__version__.split(".")[:2])
        if found < OLDEST:
            raise ImportError(f"manta needs torch {'.'.join(map(str, OLDEST))} or later, and this "
                              f"is {torch.__version__}")
        import torch.distributed
        import torch.nn.parallel
        import torch.utils.data  # noqa: F401
        import manta._frameworks.torch.state  # noqa: F401
        import manta._frameworks.torch.world  # noqa: F401

        torch.set_num_threads(1)

    def warm(self) -> None:
        """The first step of the first optimizer imports as much again as torch itself. The first
        workers do that at the same time, each for itself; later ones find it done."""
        import torch

        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.step()

    def is_warm(self) -> bool:
        return "torch._dynamo" in sys.modules

    # --- in a worker ---

    def reseed(self) -> None:
        import torch
        torch.random.default_generator.seed()

    def seed_all(self, number: int) -> None:
        import torch
        torch.manual_seed(number)

    def random_states(self) -> dict[str, bytes]:
        from manta._frameworks.torch import seed
        return seed.states()

    def set_random_states(self, found: dict[str, bytes]) -> None:
        from manta._frameworks.torch import seed
        seed.set_states(found)

    def set_threads(self, n: int) -> None:
        import torch
        torch.set_num_threads(n)

    def enter(self, backend_config: BackendConfig) -> None:
        from manta._frameworks.torch import world
        assert isinstance(backend_config, TorchConfig)
        world.enter(backend_config.backend, backend_config.init_method, backend_config.timeout_s)

    def leave(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        from manta._frameworks.torch import world
        world.leave()

    def resume(self, backend_config: BackendConfig) -> None:
        from manta._frameworks.torch import world
        assert isinstance(backend_config, TorchConfig)
        world.resume(backend_config.backend, backend_config.init_method, backend_config.timeout_s)

    def rest(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        from manta._frameworks.torch import world
        world.rest(error)

    def save_passes(self) -> None:
        from manta._frameworks.torch import auto
        auto.begin()

    def let_go(self) -> None:
        if registry := sys.modules.get("manta._frameworks.torch.registry"):
            registry.clear()

    def is_peer_error(self, error: Exception) -> bool:
        return (type(error).__module__.startswith("torch") or super().is_peer_error(error)
                or any(word in str(error) for word in _PEER_WORDS))

    def without_group(self, o: Any) -> Any:
        """A model in DistributedDataParallel is the model alone; of one in FSDP this rank has only
        pieces."""
        parallel = sys.modules.get("torch.nn.parallel")
        if parallel is not None and isinstance(o, parallel.DistributedDataParallel):
            return o.module
        sharded = sys.modules.get("torch.distributed.fsdp")
        if sharded is not None and isinstance(o, sharded.FSDPModule):
            raise TypeError(f"each rank has only pieces of the FSDP model ({type(o).__name__})\n"
                            f"hint: return get_model_state_dict(model, options=StateDictOptions("
                            f"full_state_dict=True, cpu_offload=True)) of torch.distributed."
                            f"checkpoint.state_dict, or take it from trainer.latest_checkpoint")
        return o

    def tensors(self) -> Tensors:
        from manta._frameworks.torch import state
        return state.TENSORS

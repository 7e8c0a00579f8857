# SPDX-License-Identifier: Apache-2.0
"""Frameworks: what is set up around a train function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manta.sgd.worker_group import WorkerGroup


class Backend:
    """Hooks around the work of a trainer; a subclass has those it needs."""

    def on_start(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """In the driver, when the workers are there."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: BackendConfig) -> None:
        """In the driver, before they end."""

    def enter(self, backend_config: BackendConfig) -> None:
        """In a worker, before every call of a train function."""

    def leave(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        """In a worker, after it: the process may be used again."""

    def resume(self, backend_config: BackendConfig) -> None:
        """In a worker, before every call between runs (execute, an instance's methods). What it
        sets up stays for the next one, and ends with the process or the next run. All ranks call
        it, also if the call is for one of them."""

    def rest(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        """In a worker, after it."""


class BackendConfig:
    """What the user says about a framework; it travels to the workers with every job."""
    framework = "none"  # imported by what workers are forked from: "none" or "torch"

    @property
    def backend_cls(self) -> type[Backend]:
        return Backend


def resolve(backend: Any, backend_args: Any) -> BackendConfig:
    """The config of the arguments `backend` and `backend_args` of a trainer."""
    if backend_args is not None and not isinstance(backend_args, BackendConfig):
        raise TypeError(f"backend_args must be a BackendConfig, such as TorchConfig(), not "
                        f"{type(backend_args).__name__}")
    if isinstance(backend, BackendConfig):
        if backend_args is not None:
            raise ValueError("backend and backend_args both are a BackendConfig: give one of them")
        return backend
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend must be 'auto', 'torch', None or a BackendConfig, not {backend!r}"
                        f"{_hint_for(backend)}")
    named = _named(backend)
    if backend_args is None:
        return named
    if backend != "auto" and not isinstance(backend_args, type(named)):
        raise ValueError(f"backend={backend!r} and backend_args={backend_args!r} contradict each "
                         f"other")
    return backend_args


def _hint_for(backend: Any) -> str:
    if isinstance(backend, type) and issubclass(backend, BackendConfig):
        return f"\nhint: an object of it: {backend.__name__}()"
    if getattr(backend, "__name__", None) == "torch":
        return "\nhint: its name: 'torch'"
    return ""


def _named(name: str | None) -> BackendConfig:
    from manta._runtime.driver import choose_framework
    if name is None or (name == "auto" and choose_framework(None) == "none"):
        return BackendConfig()
    if name in ("auto", "torch", "pytorch"):
        from manta.sgd.torch_backend import TorchConfig
        return TorchConfig()
    if name in ("tensorflow", "tf", "keras", "horovod", "jax"):
        raise ValueError(f"backend {name!r} is not in this version of manta\n"
                         f"hint: 'torch', or None, which sets up no framework")
    hint = "'auto', 'torch' (= 'pytorch'), None or a BackendConfig"
    if name in ("gloo", "nccl", "mpi", "manta"):
        hint = f"TorchConfig(backend={name!r}) in place of the name"
    elif "lightning" in name or "accelerate" in name:
        hint = "'torch': inside its train function Lightning and Accelerate find their ranks"
    raise ValueError(f"unknown backend {name!r}\nhint: {hint}")

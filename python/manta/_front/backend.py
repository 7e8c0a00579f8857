# SPDX-License-Identifier: Apache-2.0
"""Which framework a trainer is asked for."""

from __future__ import annotations

from typing import Any

from manta import _frameworks
from manta._frameworks.base import BackendConfig

_ABSENT = ("jax",)


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
        raise TypeError(f"backend must be 'auto', {_known()}, None or a BackendConfig, not "
                        f"{backend!r}{_hint_for(backend)}")
    named = _named(backend)
    if backend_args is None:
        return named
    if backend != "auto" and not isinstance(backend_args, type(named)):
        raise ValueError(f"backend={backend!r} and backend_args={backend_args!r} contradict each "
                         f"other")
    return backend_args


def _known(synonyms: bool = False) -> str:
    """Their names, as a message has them."""
    words = []
    for name in _frameworks.names():
        others = ", ".join(f"= {s!r}" for s in _frameworks.get(name).synonyms)
        words.append(f"{name!r} ({others})" if synonyms and others else repr(name))
    return ", ".join(words)


def _hint_for(backend: Any) -> str:
    if isinstance(backend, type) and issubclass(backend, BackendConfig):
        return f"\nhint: an object of it: {backend.__name__}()"
    if (name := getattr(backend, "__name__", None)) in _frameworks.names():
        return f"\nhint: its name: {name!r}"
    return ""


def _named(name: str | None) -> BackendConfig:
    if name is None or name == "auto":
        return _frameworks.get("none" if name is None else _frameworks.automatic()).config()
    for framework in map(_frameworks.get, _frameworks.names()):
        if name == framework.name or name in framework.synonyms:
            return framework.config()
    if name in _ABSENT:
        raise ValueError(f"backend {name!r} is not in this version of manta\n"
                         f"hint: {_known()}, or None, which sets up no framework")
    hints = (framework.hint(name) for framework in map(_frameworks.get, _frameworks.names()))
    hint = next((h for h in hints if h), f"'auto', {_known(True)}, None or a BackendConfig")
    raise ValueError(f"unknown backend {name!r}\nhint: {hint}")

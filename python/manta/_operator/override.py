# SPDX-License-Identifier: Apache-2.0
"""A mark on methods, as ray.util.sgd.utils has it."""

from __future__ import annotations

from typing import Callable, TypeVar

F = TypeVar("F", bound=Callable[..., object])

__all__ = ["override"]


def __dir__() -> list[str]:
    return __all__


def override(interface_class: type) -> Callable[[F], F]:
    """The method below it takes the place of one of that class; an error if there is none."""
    def mark(method: F) -> F:
        if not hasattr(interface_class, method.__name__):
            raise TypeError(f"{interface_class.__name__} has no {method.__name__} to override")
        return method
    return mark

# SPDX-License-Identifier: Apache-2.0
"""What pickles on disk name: those of checkpoints, and of results and rows in the directory of a
run. The names are a part of their format: they stay here, whatever else moves."""

from __future__ import annotations

import importlib
from typing import Any, NoReturn


# --- in checkpoints -------------------------------------------------------------------------------


def tensor(*args: Any) -> NoReturn:
    """Stands for a tensor of torch, which is an entry of the checkpoint. Who reads that puts its
    own function in the place of this one (manta._frameworks.tensors)."""
    _refuse()


def piece(*args: Any) -> NoReturn:
    """Stands for a DTensor of torch, of which each rank has saved a piece."""
    _refuse()


def keras_model(*parts: Any) -> Any:
    """A Keras model, of its config and its weights; in results as well. No code comes with it: its
    classes are found by their names."""
    from manta._frameworks.tensorflow import models
    return models.build(*parts)


def array_as(raw: Any, kind: str) -> Any:
    """A numpy array of a type that is not numpy's own, of its bytes."""
    import ml_dtypes
    return raw.view(getattr(ml_dtypes, kind))


def _refuse() -> NoReturn:
    from pickle import UnpicklingError
    raise UnpicklingError("this is a checkpoint of manta: open it with manta")


# --- in results and rows --------------------------------------------------------------------------


def module(name: str) -> Any:
    """A module, or what is reached like one (torch.ops)."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        parent, _, last = name.rpartition(".")
        if not parent or not hasattr(found := module(parent), last):
            raise
        return getattr(found, last)


def itself(o: Any) -> Any:
    return o


def again(cls: Any, args: Any) -> BaseException:
    """An exception of that class, as the builtin one below it makes it."""
    if not issubclass(cls, BaseException):
        raise TypeError(f"{cls!r} is not an exception")
    base = builtin(cls)
    e: BaseException = base.__new__(cls, *args)
    base.__init__(e, *args)
    return e


def builtin(cls: type) -> type[BaseException]:
    """The nearest builtin class."""
    return next(c for c in cls.__mro__ if c.__module__ == "builtins")

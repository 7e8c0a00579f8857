# SPDX-License-Identifier: Apache-2.0
"""What Ray's own tests are run with, in the driver and in workers. It makes the programs of a
release importable (ray.train.examples), and puts a placeholder in the place of what manta does not
have, because it is private to Ray or another package's: a test that uses one is skipped with its
name."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

OTHERS = ("boto3", "horovod", "mlflow", "moto", "pandas", "pyarrow", "pytest_lazyfixture",
          "pytorch_lightning", "tensorflow", "wandb", "xgboost")
EXAMPLES = ("ray.train.examples", "ray.air.examples", "ray.tune.examples",
            "ray.tune.utils.mock_trainable", "ray.util.sgd.torch.examples",
            "ray.util.sgd.v2.examples")
EXAMPLES_ALONE = os.environ.get("RAY_EXAMPLES_ALONE") is not None  # and no placeholders
running = False  # a test, not the import of its file


# --- placeholders ---------------------------------------------------------------------------------


class _Absent(type):
    """Of classes that stand for anything. While a file is imported they take part in everything."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _use(f"{cls.__name__}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _use(cls.__name__)

    def __iter__(cls) -> Any:
        return iter((cls, cls))

    def __or__(cls, other: Any) -> Any:
        return cls


def _use(name: str) -> Any:
    if running:
        import pytest
        pytest.skip(f"uses {name}")
    return absent(name)


def absent(name: str) -> Any:
    return _Absent(name, (Exception,), {})


def wait_for_condition(predicate: Callable[..., bool], timeout: float = 10,
                       retry_interval_ms: float = 100, **kwargs: Any) -> None:
    """ray._private.test_utils has it; it is not about Ray."""
    by = time.monotonic() + timeout
    while not predicate(**kwargs):
        assert time.monotonic() < by, "the condition was not met in time"
        time.sleep(retry_interval_ms / 1000)


KNOWN: dict[tuple[str, str], Any] = {
    ("ray._private.test_utils", "wait_for_condition"): wait_for_condition,
    ("ray.air.constants", "MAX_REPR_LENGTH"): 120,
}
PRIVATE = {"ray.train._checkpoint": "ray.train"}  # modules whose names users have elsewhere


def show_inside() -> None:
    """The forms of a checkpoint, by the private names that Ray's tests look at."""
    cls = importlib.import_module("ray.air").Checkpoint
    cls._data_dict = property(lambda c: c._data)
    cls._local_path = property(lambda c: c._path and str(c._path))
    cls._uri = cls._obj_ref = None


class Finder:
    """Before all others: what they do not find is a placeholder."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in EXAMPLES:
            above = Path(os.environ["RAY_RELEASE"], *name.split(".")[:-1])
            return importlib.machinery.PathFinder.find_spec(name, [str(above)])
        if name.startswith(tuple(f"{e}." for e in EXAMPLES)):
            return importlib.machinery.PathFinder.find_spec(name, path)
        if EXAMPLES_ALONE or name.partition(".")[0] not in ("ray", *OTHERS) or self._is_found(
                name, path):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def _is_found(self, name: str, path: Any) -> bool:
        for finder in sys.meta_path:
            try:
                if finder is not self and finder.find_spec(name, path):
                    return True
            except ImportError:
                pass
        return False

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        found = absent(module.__name__)
        found.__path__, found.__spec__ = [], module.__spec__
        sys.modules[module.__name__] = found


def install() -> None:
    """Before the finder of manta, which says what it does not have."""
    from manta.compat import ray
    ray.install()
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]


def provide(*names: tuple[str, str]) -> None:
    """So that `from module import name` goes well for each."""
    for where, name in names:
        module: Any = importlib.import_module(where)
        if name == "Checkpoint":
            show_inside()
        if where in PRIVATE:
            setattr(module, name, getattr(importlib.import_module(PRIVATE[where]), name))
        elif (where, name) in KNOWN:
            setattr(module, name, KNOWN[where, name])
        elif not _has(module, where, name):
            setattr(module, name, absent(f"{where}.{name}"))


def _has(module: Any, where: str, name: str) -> bool:
    try:
        return not isinstance(getattr(module, name), _Absent)
    except AttributeError:
        pass
    try:
        return bool(importlib.import_module(f"{where}.{name}"))
    except ImportError:
        return False


# --- files ----------------------------------------------------------------------------------------


def adapt(text: str) -> str:
    """The text of a file of tests with a line that imports this before its first import."""
    tree = ast.parse(text)
    first = next(n.lineno for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))
                 and getattr(n, "module", "") != "__future__")
    lines = text.splitlines(keepends=True)
    line = f"import harness; harness.provide{tuple(_names(tree))!r}\n"
    return "".join((*lines[:first - 1], line, *lines[first - 1:]))


def _names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (
                node.module or "").partition(".")[0] in ("ray", *OTHERS):
            yield from ((node.module or "", name.name) for name in node.names)


# --- as a plugin of pytest ------------------------------------------------------------------------


def pytest_runtest_setup(item: Any) -> None:
    global running
    running = True

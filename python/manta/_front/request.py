# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for: the arguments that all ways to begin one have in common."""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, NoReturn

from manta import _frameworks, _manta
from manta._front import callbacks as _callbacks
from manta._front import config as _config
from manta._front import resources
from manta._front import storage as _storage
from manta._front.strategy import CheckpointStrategy
from manta._runtime.job import Job, Setting


@dataclass(eq=False, repr=False)
class RunRequest:
    """The arguments of run() and run_generator(): given as the user has, and after check() as a run
    takes them."""
    function: Callable[..., Any]
    config: Any
    callbacks: Any
    dataset: Any
    checkpoint: Any  # an object, the path of one on disk, or "auto"
    strategy: Any
    num_workers: Any
    trust: bool

    def check(self, framework: str) -> None:
        if self.dataset is not None:
            from manta._front import datasets
            self.dataset = datasets.checked(self.dataset)
        self.strategy = CheckpointStrategy.checked(self.strategy)
        self.callbacks = _callbacks.checked(self.callbacks)
        if self._is_auto and not _frameworks.get(framework).saves_itself:
            able = [n for n in _frameworks.names() if _frameworks.get(n).saves_itself]
            raise ValueError(f'checkpoint="auto" needs the {" or ".join(able)} backend')

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.checkpoint, str) and self.checkpoint == "auto"

    @property
    def _has_path(self) -> bool:
        return isinstance(self.checkpoint, (str, Path)) and not self._is_auto

    @property
    def name(self) -> str:
        """Of the function, in messages."""
        return name_of(self.function)

    @property
    def workers(self) -> int:
        """libmanta's 0: as many as the trainer has."""
        return 0 if self.num_workers is None else resources.worker_range(self.num_workers)[0]

    # --- for libmanta -----------------------------------------------------------------------------

    def described(self) -> dict[str, Any] | None:
        """The config, as run.log has it."""
        return None if self.config is None else _config.described(self.config)

    def options(self, home: Path) -> dict[str, Any]:
        """Of its run. A checkpoint on disk is libmanta's business; home: where this trainer's runs
        are, whose checkpoints are trusted."""
        out: dict[str, Any] = {}
        if self._has_path:
            out["checkpoint"] = str(self._trusted_path(home))
        if self.strategy is not None:
            out |= self.strategy.options()
        return out

    def _trusted_path(self, home: Path) -> Path:
        """A checkpoint from elsewhere may hold a pickle, and reading it runs what its writer put
        into it: without trust the workers do not read it. Here only the answer comes sooner."""
        uri = _storage.stored_at("checkpoint", self.checkpoint)
        path = self._brought(uri) if uri else Path(self.checkpoint).expanduser().resolve()
        if not (path / "manifest.json").is_file():
            self._refuse_path(path)
        self.trust = self.trust or (path.is_relative_to(home.expanduser().resolve())
                                    and path.stat().st_uid == os.geteuid()
                                    and not _storage.is_foreign(path))
        if not self.trust:
            from manta import _state
            if _state.is_pickled(path):
                raise PermissionError(f"{path} is not from a run in {home}, and contains a pickle: "
                                      f"loading it runs the code that its author put into it\n"
                                      f"hint: run(..., trust=True) if it is yours")
        return path

    @staticmethod
    def _brought(uri: str) -> Path:
        """Of a checkpoint in a store: where this host has it, or has it now."""
        path = Path(_manta.storage_local(uri))
        if not (path / "manifest.json").is_file():
            _manta.storage_download(uri, str(path))
            (path / _storage.FETCHED).write_text(uri)
        return path.resolve()

    def _refuse_path(self, path: Path) -> NoReturn:
        hints = (_frameworks.get(name).hint_for_file(str(self.checkpoint))
                 for name in _frameworks.names())
        hint = next((f"\nhint: run(…, checkpoint={h})" for h in hints if h), "")
        raise ValueError(f"{path} is not a checkpoint: a directory with a manifest.json is{hint}")

    # --- for the workers --------------------------------------------------------------------------

    def job(self, setting: Setting) -> Job:
        """After options(), which says whether what is loaded is trusted."""
        args, kwargs = arguments_of(self.function, {} if self.config is None else self.config)
        given = None if self._is_auto or self._has_path else self.checkpoint
        return Job(setting, self.function, args, kwargs, checkpoint=given, trust=self.trust,
                   auto=self._is_auto, datasets=self.dataset)


# --- the function ---------------------------------------------------------------------------------


def name_of(function: Any) -> str:
    """Of a function, or of the function of a partial; else of what kind it is."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def arguments_of(function: Any, config: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a train function is called with: nothing, the config, or its entries by name."""
    if not callable(function):
        raise TypeError(f"the train function must be callable, not {function!r}\n"
                        f"hint: run(train), the function itself")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin
        return (), {}
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD,
                                                      p.VAR_POSITIONAL)]
    if len(positional) > 1:
        _too_many(function, positional)
    if positional:
        return (config,), {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return (), _config.keywords(config, name_of(function))
    return (), {}


def _too_many(function: Any, parameters: list[inspect.Parameter]) -> NoReturn:
    names = ", ".join(p.name for p in parameters)
    raise ValueError(f"{name_of(function)}({names}) takes {len(parameters)} arguments; a train "
                     f"function takes none, or one: the config\n"
                     f"hint: put the others into config, or use functools.partial")

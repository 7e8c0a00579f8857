# SPDX-License-Identifier: Apache-2.0
"""What is sent to workers: a call with what surrounds it. The parts of a job are pickled in the
driver and called in a worker."""

from __future__ import annotations

import enum
import pickle
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from manta import _frameworks, _manta
from manta._runtime import logs, main, pickling, shared

if TYPE_CHECKING:
    from manta._frameworks.base import BackendConfig


@dataclass(eq=False, repr=False)
class Setting:
    """What surrounds every call on the workers of a trainer."""
    backend: BackendConfig
    hook: Callable[[], Any] | None = None  # called once in every new worker
    hook_number: int = 0  # of the trainer's hooks, from 1
    retry: tuple[type[BaseException], ...] = ()  # exceptions after which the run is revived
    gpus: bool = False  # workers reserve GPUs, or parts of one


class Kind(enum.Enum):
    """How the framework is set up around a job."""
    RUN = enum.auto()  # a train function: for it alone
    CALL = enum.auto()  # a call between runs: from one to the next
    BARE = enum.auto()  # not at all


@dataclass(eq=False, repr=False)
class Job:
    """A train function, or a call between runs."""
    setting: Setting
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    checkpoint: Any = None  # what load_checkpoint gives before anything was saved
    auto: bool = False  # checkpoint="auto"
    trust: bool = False  # a checkpoint that was named by its path may be unpickled
    kind: Kind = Kind.RUN
    datasets: Any = None  # a Dataset, or a dict or tuple of them

    def pack(self, name: str) -> bytes:
        """The payload of a run. `name` is what the function is called in messages."""
        body, rest = pickling.dumps(self, self._parts(name))
        return pickle.dumps((header(rest), body))

    def pack_trials(self, name: str, here: bool) -> tuple[bytes, shared.Shared | None]:
        """The payload of many runs, which a process that serves several of them loads once. here:
        all are on this host, and what is large travels once; keep what comes second meanwhile."""
        large: list[memoryview] = []
        apart = (lambda buffer: shared.apart(buffer, large)) if here else None
        body, rest = pickling.dumps(self, self._parts(name), apart)
        kept = (shared.Shared([memoryview(body), *large])
                if here and (large or len(body) > shared.LARGE) else None)
        head = {**header(rest), "again": True, "shared": kept and kept.where}
        return pickle.dumps((head, None if kept else body)), kept

    def _parts(self, name: str) -> dict[str, Any]:
        return {name: self.function, **self._arguments(name), "the checkpoint": self.checkpoint,
                "the dataset": self.datasets,
                "the initialization hook": self.setting.hook, "the backend": self.setting.backend}

    def _arguments(self, name: str) -> dict[str, Any]:
        """By the names that messages have for them."""
        if self.kind is Kind.RUN and len(self.args) == 1:
            return {"the config": self.args[0]}
        given = {name if callable(a) else f"argument {i}": a for i, a in enumerate(self.args)}
        return given | {f"argument {k!r}": v for k, v in self.kwargs.items()}

    def __call__(self) -> Any:
        """In a worker that is prepared: the function, and the framework around it."""
        if self.kind is Kind.BARE:
            return self.call()
        config = self.setting.backend
        backend = config.backend_cls()
        begin, end = ((backend.enter, backend.leave) if self.kind is Kind.RUN
                      else (backend.resume, backend.rest))
        error: BaseException | None = None
        begin(config)
        try:
            if self.auto:
                _frameworks.get(config.framework).save_passes()
            return self.call()
        except BaseException as e:
            error = e
            raise
        finally:
            end(config, error)
            del error
            for framework in _frameworks.imported() if self.kind is Kind.RUN else ():
                framework.let_go()

    def call(self) -> Any:
        """The function itself. One that calls sys.exit() has ended well, and returned nothing."""
        try:
            return self.function(*self.args, **self.kwargs)
        except SystemExit as e:
            if isinstance(e, _manta.Preempted) or e.code not in (None, 0):
                raise
        return None


def header(rest: dict[str, bytes]) -> dict[str, Any]:
    """What makes another process like this one, before it reads what was pickled here."""
    return {"path": list(sys.path), "argv": list(sys.argv), "logging": logs.describe(),
            "main": main.describe(), "rest": rest, "ray": offers_ray()}


def offers_ray() -> bool:
    """Whether programs of this process import manta by the name ray: so do its workers then."""
    compat = sys.modules.get("manta.compat.ray")
    return compat is not None and compat.is_installed()


# --- calls between runs ---------------------------------------------------------------------------


def nothing() -> None:
    """What start() calls: the workers are there when it returns."""


def make_instance(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The class API: one instance per worker, which lives as long as its process."""
    from manta._runtime import worker
    worker.instance = cls(*args, **kwargs)


def on_instance(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from manta._runtime import worker
    if worker.instance is None:
        raise RuntimeError("this worker has no instance: it took the place of one that was lost\n"
                           "hint: start the class again")
    return function(worker.instance, *args, **kwargs)


def method_of_instance(name: str, *args: Any, **kwargs: Any) -> Any:
    return on_instance(lambda o: getattr(o, name)(*args, **kwargs))


def on_rank(rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """On one worker; the others give None."""
    return function(*args, **kwargs) if _manta.place()[0] == rank else None

# SPDX-License-Identifier: Apache-2.0
"""What is tuned: a function of a config, a class in steps, or a whole distributed run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manta import _frameworks, _manta
from manta._front import resources as _resources
from manta._front import session as _session
from manta._front.request import arguments_of, name_of
from manta._front.trainable import Trainable
from manta._front.tuned import TunedRun
from manta._runtime import driver as _driver
from manta._runtime import job as _job
from manta._runtime import main as _main


@dataclass(eq=False)
class Saving:
    """When a class in steps saves; functions do by themselves."""
    every: int = 0
    at_end: bool = False
    stop: dict[str, Any] = field(default_factory=dict)  # reports that are the last


@dataclass(eq=False)
class Given:
    """What tune.run() makes of its first argument."""
    name: str
    job: _job.Job
    trainer: dict[str, Any]
    figures: dict[str, float] = field(default_factory=dict)  # what a trial gets


# --- arguments of a function that are not its config ----------------------------------------------


class _WithParameters:
    """A trainable with what it is called with besides the config. It travels to the workers once,
    with the function, and not with every trial."""

    def __init__(self, trainable: Any, parameters: dict[str, Any]):
        self.trainable, self.parameters = trainable, parameters
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(trainable, name, None))

    def __call__(self, config: Any) -> Any:
        return self.trainable(config, **self.parameters)


def with_parameters(trainable: Any, **parameters: Any) -> Any:
    """The trainable, called with these besides its config: objects that are too large to be a part
    of it. A class gets them in setup(config, …)."""
    if inspect.isclass(trainable):
        class WithParameters(trainable):  # type: ignore[misc]
            def setup(self, config: dict[str, Any]) -> None:
                super().setup(config, **parameters)
        WithParameters.__name__ = trainable.__name__
        WithParameters.__qualname__ = trainable.__qualname__
        return WithParameters
    if not callable(trainable):
        raise TypeError(f"with_parameters takes a function or a class, not {trainable!r}")
    known = inspect.signature(trainable).parameters
    missing = [k for k in parameters if k not in known]
    if missing and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        raise TypeError(f"{name_of(trainable)} takes no {', '.join(missing)}\nhint: def "
                        f"{trainable.__name__}(config, {', '.join(parameters)}): …")
    return _WithParameters(trainable, parameters)


def with_resources(trainable: Any, resources: dict[str, float]) -> Any:
    """The trainable with what one trial of it gets: {"cpu": 2, "gpu": 0.5}."""
    if callable(resources):
        raise TypeError("with_resources takes a dict, not a function: all trials get the same")
    checked(resources)
    if inspect.isclass(trainable):
        return type(trainable.__name__, (trainable,), {"_resources": dict(resources)})
    wrapped = _WithParameters(trainable, {}) if not isinstance(
        trainable, _WithParameters) else trainable
    wrapped._resources = dict(resources)  # type: ignore[attr-defined]
    return wrapped


def checked(resources: Any) -> dict[str, float]:
    """resources_per_trial as a worker has them."""
    given = resources.required_resources if hasattr(resources, "required_resources") else resources
    if not isinstance(given, dict):
        raise TypeError(f'resources_per_trial must be a dict such as {{"cpu": 2, "gpu": 0.5}}, not '
                        f'{resources!r}')
    out: dict[str, float] = {}
    for name, amount in given.items():
        if isinstance(amount, dict):  # custom_resources
            out.update(amount)
        else:
            out[name.upper() if name.lower() in ("cpu", "gpu") else name] = amount
    return out


# --- what a worker calls --------------------------------------------------------------------------


class TrialOf:
    """A trial, in its worker. The config comes with the trial, the rest with the experiment."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self) -> Any:
        config = _manta.trial_config()
        directory = {}
        if "checkpoint_dir" in _parameters(self.function):
            from manta.tune import _session as session
            directory = {"checkpoint_dir": session.loaded_directory()}
        args, kwargs = (((config,), {}) if directory
                        else arguments_of(self.function, config))
        found = self.function(*args, **kwargs, **directory)
        if isinstance(found, dict) and all(isinstance(k, str) for k in found):
            _manta.report(**found)
        elif isinstance(found, (int, float)) and not isinstance(found, bool):
            _manta.report(_metric=found)
        return None


class StepsOf:
    """A trial of a class in steps."""

    def __init__(self, cls: type[Trainable], saving: Saving):
        self.cls, self.saving = cls, saving

    def __call__(self) -> None:
        from manta.tune import _session as session
        trial = self.cls(_manta.trial_config(), logdir=session.get_trial_dir())
        try:
            if (path := session.loaded_directory()) is not None:
                trial.restore(next(Path(path).glob("checkpoint_*")))
            while self._step(trial, session):
                pass
        finally:
            trial.stop()

    def _step(self, trial: Trainable, session: Any) -> bool:
        """False: that was the last."""
        row = trial.train()
        last = bool(row.get("done")) or any(k in row and row[k] >= v
                                            for k, v in self.saving.stop.items())
        every = self.saving.every
        if last and self.saving.at_end or every and trial.iteration % every == 0:
            with session.checkpoint_dir() as path:
                trial.save(path)
        session.report({k: v for k, v in row.items() if k != "config"})
        if not last and _session.preempted():
            raise _manta.Preempted(0)
        return not last


def _parameters(function: Any) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


# --- for tune.run ---------------------------------------------------------------------------------


def given(trainable: Any, resources: Any, saving: Saving) -> Given:
    """What an experiment runs, from whatever may be tuned."""
    _main.check_not_importing()
    if hasattr(trainable, "as_tuned"):  # a trainer of generation 3
        trainable = trainable.as_tuned()
    if isinstance(trainable, TunedRun):
        if resources is not None:
            raise ValueError("resources_per_trial: this trainable brings the resources of its "
                             "trainer\nhint: Trainer(num_workers=…, resources_per_worker=…)")
        return Given(name_of(trainable.function), trainable.job(TrialOf), trainable.native())
    wanted = resources if resources is not None else getattr(trainable, "_resources", None)
    figures = {} if wanted is None else checked(wanted)
    if inspect.isclass(trainable):
        return _given_class(trainable, figures, saving)
    if not callable(trainable):
        raise TypeError(f"tune.run takes a function, a class or a trainable, not {trainable!r}")
    if "checkpoint_dir" not in _parameters(trainable):
        arguments_of(trainable, {})  # a wrong signature shows here
    return _given_plain(name_of(trainable), TrialOf(trainable), figures)


def _given_class(cls: type, figures: dict[str, float], saving: Saving) -> Given:
    if not issubclass(cls, Trainable):
        raise TypeError(f"{cls.__name__} is no Trainable\nhint: class {cls.__name__}("
                        f"tune.Trainable): with setup(self, config) and step(self)")
    return _given_plain(cls.__name__, StepsOf(cls, saving), figures)


def _given_plain(name: str, call: Callable[[], Any], figures: dict[str, float]) -> Given:
    framework = next((n for n in _frameworks.names() if n in sys.modules), "none")
    setting = _job.Setting(_frameworks.get("none").config(), gpus=figures.get("GPU", 0) > 0)
    _driver.embed()
    trainer = {"workers": 1, "program": _driver.program(framework),
               **_resources.per_worker(None, None, None, None, figures or {"CPU": 1})}
    return Given(name, _job.Job(setting, call, trust=True), trainer, figures or {"CPU": 1})

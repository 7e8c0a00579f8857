# SPDX-License-Identifier: Apache-2.0
"""What is tuned: a function of a config, a class in steps, or a whole distributed run."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manta import _frameworks, _manta
from manta._front import resources as _resources
from manta._front import session as _session
from manta._front.fit import context as _context
from manta._front.fit import tracked as _tracked
from manta._front.request import arguments_of, name_of
from manta._front.trainable import Trainable
from manta._front.tuned import TunedRun
from manta._runtime import driver as _driver
from manta._runtime import frames as _frames
from manta._runtime import job as _job
from manta._runtime import main as _main
from manta.tune._naming import number_in
from manta.tune._place import ERROR_FILE
from manta.tune._resources import RESOURCES, PlacementGroupFactory, checked
from manta.tune.result import SHOULD_CHECKPOINT


@dataclass(eq=False)
class Saving:
    """When a class in steps saves; functions do by themselves."""
    every: int = 0
    at_end: bool = False
    exports: tuple[str, ...] = ()  # formats of the model that it leaves behind


@dataclass(eq=False)
class Way:
    """How trials run, in their workers."""
    output: tuple[str, str] | None = None  # files for what they print, in their directories
    reuse: bool = False  # many in one process
    resizes: bool = False  # a trial may get other resources meanwhile
    moves: bool = False  # to the directory of the trial
    resources: dict[str, float] = field(default_factory=dict)
    restores: str | None = None  # a checkpoint that a class begins from


def files_of(log_to_file: Any) -> tuple[str, str] | None:
    """log_to_file=True, a name, or two of them."""
    if not log_to_file:
        return None
    if log_to_file is True:
        return "stdout", "stderr"
    names = (log_to_file,) * 2 if isinstance(log_to_file, str) else tuple(log_to_file)
    if len(names) != 2 or not all(isinstance(n, str) and "/" not in n for n in names):
        raise ValueError(f"log_to_file must be True, the name of a file, or a pair of names, not "
                         f"{log_to_file!r}")
    return names


def begins_from(restore: Any, trainable: Any, resume: Any) -> str | None:
    """The checkpoint that restore= names: that of an experiment is for resume=."""
    if restore is None or resume:
        return None
    if not inspect.isclass(trainable):
        raise ValueError("restore: a class in steps begins from a checkpoint, a function loads one "
                         "itself\nhint: tune.with_parameters(train, start=path); resume=True goes "
                         "on with an experiment")
    path = str(Path(restore).expanduser().absolute())
    if not os.path.exists(path):
        raise FileNotFoundError(f"restore: there is no checkpoint {path}")
    return path


def moves(asked: bool | None) -> bool:
    """Whether trials run in their directories: as was asked for, else as the environment says, else
    as Ray does it, for programs that import ray."""
    if asked is not None:
        return bool(asked)
    if (said := os.environ.get("RAY_CHDIR_TO_TRIAL_DIR")) is not None:
        return said != "0"
    compat = sys.modules.get("manta.compat.ray")
    return compat is not None and compat.is_installed()


def plain_name(name: str) -> str:
    """Of a function, for a directory: Model.train is train, and <lambda> is lambda."""
    return name.rpartition(".")[2].strip("<>")


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


def with_resources(trainable: Any, resources: Any) -> Any:
    """The trainable with what one trial of it gets: {"cpu": 2, "gpu": 0.5}, a
    PlacementGroupFactory, or a ScalingConfig."""
    if hasattr(resources, "total_resources"):
        resources = resources.total_resources
    if callable(resources):
        raise TypeError("with_resources takes a dict, not a function: all trials get the same")
    checked(resources)
    if inspect.isclass(trainable):
        return type(trainable.__name__, (trainable,), {"_resources": dict(resources)})
    wrapped = _WithParameters(trainable, {}) if not isinstance(
        trainable, _WithParameters) else trainable
    wrapped._resources = dict(resources)  # type: ignore[attr-defined]
    return wrapped


# --- what a worker calls --------------------------------------------------------------------------


def own_facts(way: Way) -> _context.Facts:
    """What a trial is, in its worker. What it has been given meanwhile is in a file."""
    where, resources = _manta.run_dir(), way.resources
    if way.resizes and os.path.exists(given := os.path.join(where, RESOURCES)):
        resources = json.loads(Path(given).read_text())
    parent, _, name = where.rpartition("/")
    return _context.Facts(parent.rpartition("/")[2], number_in(where), name,
                          PlacementGroupFactory([resources]))


@contextlib.contextmanager
def _printing_to(names: tuple[str, str]) -> Iterator[None]:
    """To files in the directory of the trial."""
    kept = [os.dup(1), os.dup(2)]
    try:
        for fd, name in zip((1, 2), names):
            to = os.open(Path(_manta.run_dir(), name), os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                         0o644)
            os.dup2(to, fd)
            os.close(to)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, was in zip((1, 2), kept):
            os.dup2(was, fd)
            os.close(was)


def _end_process() -> None:
    """Of one worker, which is for this trial alone; others have an end of their own."""
    if _manta.place()[1] == 1:
        from manta._runtime import ending
        ending.end()


def _to_end(way: Way, call: Callable[[], Any]) -> Any:
    """With all that the trial has set up and left open."""
    try:
        return call()
    finally:
        try:
            _tracked.end(sys.exc_info()[1])
        finally:
            if not way.reuse and _manta.ending_left():
                _end_process()


def _in_trial(way: Way, call: Callable[[], Any]) -> Any:
    _context.begin_trial(own_facts(way))
    try:
        if way.output is None:
            return _to_end(way, call)
        with _printing_to(way.output):
            return _to_end(way, call)
    finally:
        _context.end_trial()


def _move_in() -> None:
    """Into the directory of this trial. Modules are found where they were."""
    here, there = os.getcwd(), _manta.run_dir()
    sys.path[:] = [os.path.join(here, p) for p in sys.path]
    os.makedirs(there, exist_ok=True)
    os.chdir(there)


def _keep_error(error: Exception) -> None:
    """The user's frames: those of manta say nothing about what went wrong."""
    import traceback
    trace = error.__traceback__
    while trace and trace.tb_next and _frames.is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    with contextlib.suppress(OSError):
        os.makedirs(_manta.run_dir(), exist_ok=True)
        Path(_manta.run_dir(), ERROR_FILE).write_text(text, errors="backslashreplace")


def _told(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the trial raises is in a file of its directory; the log of the experiment has a line."""
    @functools.wraps(call)
    def told(self: Any) -> Any:
        try:
            return call(self)
        except (_manta.Preempted, _manta.Aborted):  # it was told to end
            raise
        except Exception as e:
            _keep_error(e)
            raise
    return told


class TrialOf:
    """A trial, in its worker. The config comes with the trial, the rest with the experiment."""

    def __init__(self, function: Callable[..., Any], way: Way):
        self.function, self.way = function, way
        # Looked at once, here: a signature takes longer than a trial that does little.
        self.takes_directory = takes_directory(function)
        self.takes_config = bool(_positional(function))

    def __call__(self) -> Any:
        return _in_trial(self.way, self._call)

    @_told
    def _call(self) -> Any:
        if self.way.moves:
            _move_in()
        config = _manta.trial_config()
        directory = {}
        if self.takes_directory:
            from manta.tune import _session as session
            directory = {"checkpoint_dir": session.loaded_directory()}
        args, kwargs = (((config,), {}) if self.takes_config
                        else arguments_of(self.function, config))
        found = self.function(*args, **kwargs, **directory)
        if inspect.isgenerator(found):
            for row in found:
                _report(row)
        else:
            _report(found)
        return None


def _report(found: Any) -> None:
    """What a function has returned, or yields: metrics, or one of them."""
    if isinstance(found, dict) and all(isinstance(k, str) for k in found):
        _manta.report(**found)
    elif isinstance(found, (int, float)) and not isinstance(found, bool):
        _manta.report(_metric=found)


class StepsOf:
    """A trial of a class in steps."""

    kept: Trainable | None = None  # by a process that goes on to other trials
    place: Path | None = None  # where it saves if it is stopped after its last report

    def __init__(self, cls: type[Trainable], saving: Saving, way: Way):
        self.cls, self.saving, self.way = cls, saving, way

    def __call__(self) -> None:
        _in_trial(self.way, self._call)

    @_told
    def _call(self) -> None:
        from manta.tune import _session as session
        if self.way.moves:
            _move_in()
        trial = self._made(session.get_trial_dir())
        try:
            if (path := session.loaded_directory()) is not None:
                trial.restore(next(Path(path).glob("checkpoint_*")))
            elif self.way.restores is not None:
                trial.restore(self.way.restores)
            while self._step(trial, session):
                pass
            self._export(trial)
        except _manta.Preempted:
            self._leave(trial, session)
            raise
        finally:
            if StepsOf.kept is not trial:
                trial.stop()

    def _leave(self, trial: Trainable, session: Any) -> None:
        """It is stopped, or paused, after its last report."""
        try:
            if self.place is not None:
                with session.temporary_dir() as path:
                    trial.save(path)
                    _context.keep(Path(path), self.place)  # raises Preempted: it is to end now
        finally:
            self._export(trial)

    def _export(self, trial: Trainable) -> None:
        if self.saving.exports:
            trial.export_model(self.saving.exports)

    def _made(self, logdir: str) -> Trainable:
        """A new one, or with reuse_actors the last one if that takes another config."""
        config, kept = _manta.trial_config(), StepsOf.kept
        if kept is not None and type(kept).__qualname__ == self.cls.__qualname__:
            if kept.reset(config):
                kept._logdir = Path(logdir)
                return kept
            kept.stop()
        made = self.cls(config, logdir=logdir)
        StepsOf.kept = made if self.way.reuse else None
        return made

    def _step(self, trial: Trainable, session: Any) -> bool:
        """False: that was the last."""
        row = trial.train()
        last, every = bool(row.get("done")), self.saving.every
        due = every and trial.iteration % every == 0 or row.get(SHOULD_CHECKPOINT)
        self.place = None
        if last and self.saving.at_end or due:
            with session.checkpoint_dir() as path:
                trial.save(path)
        elif self.saving.at_end:
            self.place = _context.reserve()
        session.report({k: v for k, v in row.items() if k != "config"})
        if not last and _session.preempted():
            raise _manta.Preempted(0)
        return not last


def _positional(function: Any) -> list[str]:
    """The parameters of a function that take what has no name; the first one is the config."""
    return [p.name for p in _parameters(function).values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]


def _parameters(function: Any) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def takes_directory(function: Any) -> bool:
    """Whether it wants the path of its checkpoint, as an argument."""
    return "checkpoint_dir" in _parameters(function)


# --- for tune.run ---------------------------------------------------------------------------------


def given(trainable: Any, resources: Any, saving: Saving, way: Way) -> Given:
    """What an experiment runs, from whatever may be tuned."""
    _main.check_not_importing()
    if hasattr(trainable, "as_tuned"):  # a trainer of generation 3
        trainable = trainable.as_tuned()
    if isinstance(trainable, TunedRun):
        if resources is not None:
            raise ValueError("resources_per_trial: this trainable brings the resources of its "
                             "trainer\nhint: Trainer(num_workers=…, resources_per_worker=…)")
        return Given(name_of(trainable.function), trainable.job(lambda f: TrialOf(f, way)),
                     trainable.native())
    wanted = resources if resources is not None else getattr(trainable, "_resources", None)
    figures = {} if wanted is None else checked(wanted)
    if inspect.isclass(trainable):
        return _given_class(trainable, figures, saving, way)
    if not callable(trainable):
        several = isinstance(trainable, (list, tuple))
        hint = "\nhint: tune.run_experiments([…]) runs several experiments" if several else ""
        raise TypeError(f"tune.run takes a function, a class or a trainable, not {trainable!r}"
                        f"{hint}")
    _check_signature(trainable)
    way.resources = figures or {"CPU": 1}
    return _given_plain(name_of(trainable), TrialOf(trainable, way), figures)


def _check_signature(trainable: Any) -> None:
    given: dict[str, Any] = {}
    while isinstance(trainable, _WithParameters):
        given |= trainable.parameters
        trainable = trainable.trainable
    known = _parameters(trainable).values()
    config = _positional(trainable)[:1]
    left = [p.name for p in known if p.default is p.empty and p.name not in (
        *config, *given, "checkpoint_dir") and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if left:
        name = name_of(trainable)
        raise ValueError(f"{name}({', '.join(p.name for p in known)}): a trial calls it with the "
                        f"config alone, not with {', '.join(left)}\n"
                        f"hint: tune.with_parameters({name}, {left[0]}=…)")


def check_config(trainable: Any, config: dict[str, Any]) -> None:
    """A space for a function that is not given what is chosen from it is a mistake."""
    if not config or inspect.isclass(trainable) or not inspect.isfunction(trainable):
        return
    if not _parameters(trainable):
        name = name_of(trainable)
        raise ValueError(f"{name}() takes no config, and there is one: {', '.join(config)}\n"
                         f"hint: def {name}(config): …")


def _check_class(cls: type[Trainable]) -> None:
    older = {"_setup": "setup", "_train": "step", "_save": "save_checkpoint",
             "_restore": "load_checkpoint", "_stop": "cleanup"}
    if cls.step is not Trainable.step:
        return
    used = [f"{old} is {new}" for old, new in older.items() if hasattr(cls, old)]
    hint = f"in Ray before 1.0 it had other names: {', '.join(used)}" if used else (
        "def step(self): return {…} is one iteration")
    raise TypeError(f"{cls.__name__} has no step(self)\nhint: {hint}")


def _given_class(cls: type, figures: dict[str, float], saving: Saving, way: Way) -> Given:
    if not issubclass(cls, Trainable):
        raise TypeError(f"{cls.__name__} is no Trainable\nhint: class {cls.__name__}("
                        f"tune.Trainable): with setup(self, config) and step(self)")
    _check_class(cls)
    asked = cls.default_resource_request({}) if not figures else None
    if isinstance(asked, list) and len(asked) > 1:
        asked = asked[1:]  # the first is for the trial's own process, which waits for the others
    if asked is not None:
        figures = dict(PlacementGroupFactory(asked) if isinstance(asked, list) else checked(asked))
    way.resources = figures or {"CPU": 1}
    return _given_plain(cls.__name__, StepsOf(cls, saving, way), figures)


def _given_plain(name: str, call: Callable[[], Any], figures: dict[str, float]) -> Given:
    """figures: what was asked for; nothing: a CPU, which trials share where others use it."""
    framework = next((n for n in _frameworks.names() if n in sys.modules), "none")
    setting = _job.Setting(_frameworks.get("none").config(), gpus=figures.get("GPU", 0) > 0)
    _driver.embed()
    trainer = {"workers": 1, "program": _driver.program(framework),
               **_resources.per_worker(None, None, None, None, figures)}
    return Given(name, _job.Job(setting, call, trust=True), trainer, figures or {"CPU": 1})

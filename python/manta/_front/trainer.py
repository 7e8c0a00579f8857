# SPDX-License-Identifier: Apache-2.0
"""The trainer: a group of workers, and runs of functions on them."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path
from typing import Any, Callable, NoReturn, Sequence

from manta import _frameworks, _manta
from manta._frameworks.base import Backend
from manta._front import backend as _backend
from manta._front import callbacks as _callbacks
from manta._front import hosts as _hosts
from manta._front import resources as _resources
from manta._front import sinks as _sinks
from manta._front import storage as _storage
from manta._front.request import RunRequest, arguments_of, name_of
from manta._front.run import Run, RunIterator
from manta._front.strategy import CheckpointStrategy
from manta._front.tuned import TunedRun
from manta._front.worker_group import WorkerGroup
from manta._names import absent, arguments
from manta._runtime import display as _display
from manta._runtime import driver as _driver
from manta._runtime import frames as _frames
from manta._runtime import job as _job
from manta._runtime import main as _main

_RECORD = "trainer.json"  # in a run's directory: the trainer's arguments, for restore


class Trainer:
    """Runs functions on a group of workers.

    backend: "auto", "torch" (= "pytorch"), "tensorflow", "horovod", None, or a BackendConfig.
    num_workers: an int, or (min, max) for a run that goes on with fewer. keep_workers: survivors
    and later runs keep their processes and CUDA contexts; without it every call of a train function
    begins in a fresh process. hosts: a list of Host; without one, those of MANTA_HOSTS, or this
    host. threads_per_worker: that torch and numpy compute with; without it OMP_NUM_THREADS if it is
    set, else cpus_per_worker, else floor(CPUs of the host / workers asked for there), at least 1.
    See the user guide for the rest.
    """

    @arguments
    def __init__(self, backend: Any = "auto", num_workers: Any = None, use_gpu: bool | None = None,
                 resources_per_worker: dict[str, Any] | None = None,
                 cpus_per_worker: float | None = None, gpus_per_worker: float | None = None,
                 backend_args: Any = None, config: Any = None,
                 callbacks: Sequence[Any] | None = None, logdir: str | Path | None = None,
                 max_retries: int = 3, retry_exceptions: Any = False,
                 step_timeout: float | None = None, address: str | None = None, *,
                 workers: Any = None, gpu_per_worker: float | None = None,
                 name: str | None = None, strict_reports: bool = False,
                 show_all_output: bool = False, quiet: bool = False, pin: bool = False,
                 keep_workers: bool = False, threads_per_worker: int | None = None,
                 hosts: Sequence[_hosts.Host] | None = None, host_timeout: float | None = None):
        _main.check_not_importing()
        if num_workers is not None and workers is not None:
            raise ValueError("num_workers and workers are the same: give one of them")
        _driver.check_address(address)
        most, least = _resources.worker_range(workers if workers is not None else num_workers)
        figures = _resources.per_worker(use_gpu, cpus_per_worker, gpus_per_worker, gpu_per_worker,
                                        resources_per_worker)
        self._shares = _resources.shares(figures)
        where = _hosts.checked(hosts)
        self._backend = _backend.resolve(backend, backend_args)
        _check_kept(keep_workers, self._backend.framework)
        self._setting = _job.Setting(self._backend, retry=_retried(retry_exceptions),
                                     gpus=figures["gpus_per_worker"] > 0)
        self._config = config
        self._callbacks = _callbacks.checked(callbacks)
        self._strict_reports = strict_reports
        self._resume: str | None = None
        self._running = False
        self._started = False
        self._told_start = False  # to the workers that are there
        self._record = {"num_workers": [least, most] if least else most or None,
                        "backend": (None if self._backend.framework == "none"
                                    else self._backend.framework),
                        "use_gpu": use_gpu, "resources_per_worker": resources_per_worker,
                        "cpus_per_worker": cpus_per_worker, "gpus_per_worker": gpus_per_worker,
                        "max_retries": max_retries, "step_timeout": step_timeout,
                        "keep_workers": keep_workers, "threads_per_worker": threads_per_worker,
                        "hosts": where, "host_timeout": host_timeout}
        _driver.embed()
        program = _driver.program(self._backend.framework)
        self._native = dict(
            workers=most, min_workers=least, name=name or _script_name(),
            logdir=_directory("logdir", logdir) or _of_trial(),
            max_retries=_retries(max_retries), retry_errors=bool(retry_exceptions),
            step_timeout=_seconds("step_timeout", step_timeout),
            threads_per_worker=_threads(threads_per_worker), pin=pin,
            show_all_output=show_all_output, quiet=quiet, hosts=where,
            host_timeout=_seconds("host_timeout", host_timeout), program=program, **figures)
        self._trainer = _manta.Trainer(**self._native)
        self._keep = keep_workers
        self._trainer.keep(keep_workers)
        self._trainer.prestart()
        _driver.note_trainer(self)
        self._logdir = self._trainer.logdir()
        self._finalizer = weakref.finalize(self, _manta.Trainer.close, self._trainer)

    # --- workers ----------------------------------------------------------------------------------

    @_frames.folded
    def start(self, initialization_hook: Any = None, args: Sequence[Any] = (),
              kwargs: dict[str, Any] | None = None) -> None:
        """Starts the workers ahead of the first run. A function is called once in each of them; of
        a class each gets an instance, for execute()."""
        if initialization_hook is not None:
            _check_callable("initialization_hook", initialization_hook)
        if isinstance(initialization_hook, type):
            self._trainer.keep(True)  # an instance lives as long as its process
            self._trainer.hold(True)
            self._call(_job.make_instance, initialization_hook, tuple(args), kwargs or {})
            self._has_instance = True
        else:
            if initialization_hook is not None:
                self._setting.hook = initialization_hook
                self._setting.hook_number += 1
            self._call(_job.nothing)
        self._tell_started()

    _has_instance = False

    def _tell_started(self) -> None:
        self._started = True
        if not self._told_start:
            self._told_start = True
            self._backend.backend_cls().on_start(WorkerGroup.of(self), self._backend)

    def _renew(self, attempt: int) -> None:
        """The processes of a later attempt are told as those of the first were."""
        self._backend.backend_cls().on_start(WorkerGroup.of(self), self._backend)

    def _keeps(self) -> bool:
        """Whether the workers of the next run will have been those of this one."""
        return self._keep or self._has_instance

    def _has_hooks(self) -> bool:
        """Whether the backend wants to know when the workers are there."""
        return self._backend.backend_cls.on_start is not Backend.on_start

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Between runs: on all workers, a list by rank."""
        kind = _job.Kind.BARE if function is _job.nothing else _job.Kind.CALL
        job = _job.Job(self._setting, function, args, kwargs, kind=kind)
        payload = job.pack(name_of(next((a for a in args if callable(a)), function)))
        run = Run(lambda: self._trainer.run(payload, None, execute=True, output=self._show,
                                            kinds=_display.kinds()),
                  self._trainer, [])
        return self._to_end(run)

    def _to_end(self, run: Run) -> list[Any]:
        """Its results. Ctrl-C leaves no worker behind."""
        try:
            run.drain()
            return run.results() or []
        except KeyboardInterrupt:
            run.close()
            self.shutdown()
            raise
        finally:
            run.close()

    @_frames.folded
    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """function(*args) on all workers, a list by rank; function(instance, *args) if the trainer
        was started with a class."""
        _check_callable("execute: the function", function)
        return self._call(*self._bind(function), *args, **kwargs)

    @_frames.folded
    def execute_single(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The same on rank 0 alone."""
        _check_callable("execute_single: the function", function)
        return self._call(_job.on_rank, 0, *self._bind(function), *args, **kwargs)[0]

    def _bind(self, function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
        return (_job.on_instance, function) if self._has_instance else (function,)

    def _keep_for_group(self) -> None:
        """Whoever has a list of workers counts on these, and on what earlier calls left there."""
        self._keep = True
        self._trainer.keep(True)
        self._trainer.hold(True)

    def to_worker_group(self, cls: type, *args: Any, **kwargs: Any) -> WorkerGroup:
        """An instance of the class on each worker, as a list."""
        return WorkerGroup(trainer=self, actor_cls=cls, actor_cls_args=args,
                           actor_cls_kwargs=kwargs)

    @property
    def num_workers(self) -> int:
        """How many workers the next run has."""
        return self._trainer.workers()

    def resize(self, n: int) -> None:
        """Another number of workers: for the next run, or after the next checkpoint of this one."""
        _resources.worker_range(n)
        self._trainer.resize(n)

    def shutdown(self) -> None:
        """Ends the workers. Idempotent; a later run starts new ones."""
        self._told_start = False
        if self._started:
            self._started = False
            self._backend.backend_cls().on_shutdown(WorkerGroup.of(self), self._backend)
        self._has_instance = False
        self._trainer.shutdown()
        self._trainer.keep(self._keep)
        self._trainer.hold(False)

    def _has_workers(self) -> bool:
        return self._running or self._trainer.pid(0) > 0

    def _holds(self) -> dict[str, float]:
        """What its workers have taken of the host, by the names of resources_per_worker."""
        n = self.num_workers if self._has_workers() else 0
        return {name: n * amount for name, amount in self._shares.items()}

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.shutdown()

    def __str__(self) -> str:
        return self._trainer.table().rstrip("\n")

    def __repr__(self) -> str:
        """The table, as in print(trainer)."""
        return str(self) if hasattr(self, "_trainer") else object.__repr__(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """In IPython and notebooks."""
        printer.text("Trainer(…)" if cycle else repr(self))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"'Trainer' object has no attribute {name!r}")
        raise AttributeError(absent("Trainer", name, dir(type(self))))

    # --- runs -------------------------------------------------------------------------------------

    @_frames.folded
    @arguments
    def run(self, train_func: Callable[..., Any], config: Any = None,
            callbacks: Sequence[Any] | None = None, dataset: Any = None, checkpoint: Any = None,
            checkpoint_strategy: CheckpointStrategy | None = None,
            num_workers: int | None = None, *, trust: bool = False) -> list[Any]:
        """Runs the function on all workers; its return values by rank. trust: a checkpoint given
        by its path may be unpickled wherever it comes from."""
        run = self._begin(RunRequest(train_func, config, callbacks, dataset, checkpoint,
                                     checkpoint_strategy, num_workers, trust))
        try:
            return self._to_end(run)
        finally:
            self._running = False

    @arguments
    def run_generator(self, train_func: Callable[..., Any], config: Any = None,
                      callbacks: Sequence[Any] | None = None, dataset: Any = None,
                      checkpoint: Any = None,
                      checkpoint_strategy: CheckpointStrategy | None = None,
                      num_workers: int | None = None, *, trust: bool = False) -> RunIterator:
        """The same, yielding the reports of every iteration."""
        run = self._begin(RunRequest(train_func, config, callbacks, dataset, checkpoint,
                                     checkpoint_strategy, num_workers, trust))
        return RunIterator(run, self._ended)

    run_iterator = run_generator

    def _ended(self) -> None:
        self._running = False

    def _begin(self, asked: RunRequest) -> Run:
        if self._running:
            raise RuntimeError("this trainer has a run already: end it, or use another trainer")
        asked.check(self._backend.framework)
        if asked.config is None:
            asked.config = self._config
        options, workers = asked.options(self.logdir), asked.workers
        payload = asked.job(self._setting).pack(asked.name)
        if self._has_hooks() and not self._told_start:
            self.start()
        said, callbacks = asked.described(), self._callbacks + asked.callbacks
        page = _display.Page() if _display.is_notebook() else None
        run = Run(lambda: self._trainer.run(payload, said, workers=workers,
                                            output=page.write if page else self._show,
                                            kinds=_display.kinds(), html=page is not None,
                                            verbose=_callbacks.verbosity(callbacks),
                                            sinks=_sinks.of(callbacks),
                                            strict_reports=self._strict_reports,
                                            resume=self._resume,
                                            renew=self._renew if self._has_hooks() else None,
                                            **options),
                  self._trainer, callbacks)
        self._running, self._resume = True, None
        self._told_start &= self._keeps()
        try:
            self._write_record(run.directory)
            run.begin({} if asked.config is None else asked.config, workers or self.num_workers)
        except BaseException:
            run.close()
            self._running = False
            raise
        return run

    def _show(self, stream: int, text: str) -> None:
        _display.write(stream, text)

    def to_tune_trainable(self, train_func: Callable[..., Any], dataset: Any = None) -> TunedRun:
        """The function with this trainer's workers and resources, for tune.run: each trial is a
        distributed run of its own."""
        arguments_of(train_func, {})
        if dataset is not None:
            from manta._front import datasets
            dataset = datasets.checked(dataset)
        return TunedRun(train_func, self._setting, self._native, dataset)

    to_trainable = to_tune_trainable

    # --- a run that broke off ---------------------------------------------------------------------

    def _write_record(self, directory: str) -> None:
        import json
        Path(directory, _RECORD).write_text(json.dumps(self._record, default=repr) + "\n")

    @classmethod
    def restore(cls, run_dir: str | Path, *, trust: bool = False, **arguments: Any) -> Trainer:
        """A trainer whose next run goes on with the unfinished one in that directory. Its
        arguments are the recorded ones; those given here count more. s3://BUCKET/PREFIX/RUN is
        downloaded; trust: its checkpoints may hold pickles of others."""
        if not isinstance(run_dir, (str, Path)):
            raise TypeError(f"restore takes the directory of a run, not {run_dir!r}")
        import json
        path = _storage.fetched("run_dir", run_dir).resolve()
        _storage.check_trust(path, trust)
        try:
            record = json.loads((path / _RECORD).read_text())
        except FileNotFoundError:
            raise ValueError(f"{path} is not the directory of a run of manta.sgd\n"
                             f"hint: `manta ls` lists runs") from None
        record["num_workers"] = record["num_workers"] and (
            tuple(record["num_workers"]) if isinstance(record["num_workers"], list)
            else record["num_workers"])
        uri = _storage.stored_at("run_dir", run_dir)
        home = path.parent if uri is None else uri.rpartition("/")[0]
        trainer = cls(**{**record, "logdir": home, **arguments})
        trainer._resume = str(path)
        return trainer

    # --- what a run leaves ------------------------------------------------------------------------

    @property
    def logdir(self) -> Path:
        """Where run directories are."""
        return Path(self._logdir)

    @property
    def latest_run_dir(self) -> Path | None:
        return Path(d) if (d := self._trainer.run_dir()) else None

    @property
    def latest_checkpoint_dir(self) -> Path | None:
        return self.latest_run_dir / "checkpoints" if self.latest_run_dir else None

    def get_last_checkpoint(self) -> Any:
        """What was saved last, or None."""
        from manta import _state
        found = self._trainer.checkpoint()
        return None if found is None else _state.restore(found)

    @property
    def latest_checkpoint(self) -> Any:
        return self.get_last_checkpoint()

    @property
    def best_checkpoint_path(self) -> Path | None:
        """The checkpoint on disk with the best score; the newest one if checkpoint_strategy names
        no score."""
        if p := self._trainer.best_checkpoint():
            return Path(p)
        kept = self.latest_checkpoint_dir and self.latest_checkpoint_dir.glob("*/manifest.json")
        return max((m.parent for m in kept or ()), key=lambda p: int(p.name), default=None)

    @property
    def best_checkpoint(self) -> Any:
        from manta import _state
        path = self.best_checkpoint_path
        return None if path is None else _state.restore(_manta.open_checkpoint(str(path)))


# --- arguments ------------------------------------------------------------------------------------


def _retried(types: Any) -> tuple[type[BaseException], ...]:
    if isinstance(types, type):
        types = (types,)
    if isinstance(types, bool):
        return ()
    given: tuple[Any, ...] = tuple(types) if isinstance(types, (tuple, list, set)) else (types,)
    for t in given:
        if not (isinstance(t, type) and issubclass(t, BaseException)):
            raise TypeError(f"retry_exceptions must be a bool or exception types, not {t!r}\n"
                            f"hint: retry_exceptions=(ConnectionError, …)")
    return given


def _retries(n: Any) -> int:
    """libmanta's 0 is its default, and -2 means none."""
    if isinstance(n, bool) or not isinstance(n, int) or n < -1:
        raise ValueError(f"max_retries must be an int >= -1 (-1: unlimited), not {n!r}")
    return n or -2


def _seconds(name: str, value: float | None) -> float:
    wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
    if value is not None and wrong:
        raise ValueError(f"{name} must be a number of seconds > 0 or None, not {value!r}")
    return float(value or 0)


def _threads(n: Any) -> int:
    """libmanta's 0 is its default."""
    if n is None:
        return 0
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"threads_per_worker must be an int >= 1 (None: the worker's share of the "
                         f"CPUs), not {n!r}")
    return n


def _check_kept(keep: bool, framework: str) -> None:
    if keep and not _frameworks.get(framework).joins_again:
        raise ValueError(f"keep_workers=True: a process that {framework} has computed in cannot "
                         f"join the other ranks of a later run\nhint: leave it out; every run has "
                         f"fresh processes then")


def _of_trial() -> str | None:
    """The runs of a trainer that a worker makes are in the directory of its own run."""
    return _manta.run_dir() if _manta.in_session() else None


def _directory(name: str, given: Any) -> str | None:
    if given is not None and not isinstance(given, (str, Path)):
        raise TypeError(f"{name} must be a path, not {given!r}")
    if given is None:
        return None
    uri = _storage.stored_at(name, given)
    if uri is not None:
        return uri
    text = str(given)
    return str(_storage.path_at(name, text) if "://" in text else Path(text).expanduser())


def _check_callable(what: str, given: Any) -> None:
    if not callable(given):
        raise TypeError(f"{what} must be a function, not {given!r}")


def _script_name() -> str:
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    name = script.stem
    if name in ("main", "__main__"):  # that of many a program: its directory says more
        name = script.absolute().parent.name
    return name if name not in ("", "-c", "-m", "ipykernel_launcher") else "run"

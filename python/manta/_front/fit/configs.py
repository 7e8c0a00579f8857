# SPDX-License-Identifier: Apache-2.0
"""What a run is asked for: how many workers, where, how long, what is kept. Everything is checked
when it is made, so that a mistake shows where it was written."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, TypeVar

from manta import _manta
from manta._front import callbacks as _callbacks
from manta._front import resources as _resources
from manta._front import storage as _storage
from manta._front.strategy import CheckpointStrategy
from manta._names import arguments, public

T = TypeVar("T")

_PLACEMENTS = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


def _is_int(n: Any) -> bool:
    return isinstance(n, int) and not isinstance(n, bool)


@public
@dataclass
class ScalingConfig:
    """num_workers: an int, or (min, max) for a run that goes on with fewer. resources_per_worker:
    {"CPU": 2, "GPU": 0.5}. trainer_resources is for the driver, which manta does not count;
    placement_strategy and accelerator_type say on which hosts: ranks are given out host by host,
    in the order of MANTA_HOSTS, whatever they are."""
    trainer_resources: dict[str, float] | None = None
    num_workers: Any = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None

    def __post_init__(self) -> None:
        _resources.worker_range(self.num_workers)
        _resources.per_worker(self.use_gpu, None, None, None, self.resources_per_worker)
        if self.trainer_resources is not None and not isinstance(self.trainer_resources, dict):
            raise TypeError(f"trainer_resources must be a dict such as {{'CPU': 1}}, not "
                            f"{self.trainer_resources!r}")
        if self.placement_strategy not in _PLACEMENTS:
            raise ValueError(f"placement_strategy must be one of {', '.join(_PLACEMENTS)}, not "
                             f"{self.placement_strategy!r}")
        if self.placement_strategy != "PACK" or self.accelerator_type is not None:
            warnings.warn("manta ignores placement_strategy and accelerator_type: ranks are given "
                          "out host by host", stacklevel=3)

    def _per_worker(self, name: str, otherwise: float) -> float:
        return float((self.resources_per_worker or {}).get(name, otherwise))

    @property
    def num_cpus_per_worker(self) -> float:
        return self._per_worker("CPU", 1)

    @property
    def num_gpus_per_worker(self) -> float:
        return self._per_worker("GPU", 1 if self.use_gpu else 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        return {k: v for k, v in (self.resources_per_worker or {}).items()
                if k not in ("CPU", "GPU")}

    @property
    def total_resources(self) -> dict[str, float]:
        """Of all workers together."""
        n = max(_resources.worker_range(self.num_workers))
        each = {"CPU": self.num_cpus_per_worker, "GPU": self.num_gpus_per_worker,
                **self.additional_resources_per_worker}
        return {name: n * value for name, value in each.items() if value}


@public
@dataclass
class FailureConfig:
    """max_failures: how often the run is revived after lost workers or an exception of the train
    function (-1: without end). fail_fast: not even once."""
    max_failures: int = 0
    fail_fast: bool | str = False

    def __post_init__(self) -> None:
        if not _is_int(self.max_failures) or self.max_failures < -1:
            raise ValueError(f"max_failures must be an int >= -1 (-1: unlimited), not "
                             f"{self.max_failures!r}")
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f"fail_fast must be True or False, not {self.fail_fast!r}")
        if self.fail_fast and self.max_failures:
            raise ValueError(f"fail_fast and max_failures={self.max_failures} contradict each other"
                             f"\nhint: leave one of them out")


@public
@dataclass
class CheckpointConfig:
    """num_to_keep: how many checkpoints stay on disk (None: all); with an attribute, the name of a
    reported metric, those with the best score, and the newest. checkpoint_frequency: of the
    checkpoints that are reported only those of every n-th report are saved (0: all)."""
    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int | None = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        self.strategy()
        n = self.checkpoint_frequency
        if n is not None and (not _is_int(n) or n < 0):
            raise ValueError(f"checkpoint_frequency must be an int >= 0, not {n!r}")

    def strategy(self) -> CheckpointStrategy:
        return CheckpointStrategy(self.num_to_keep, self.checkpoint_score_attribute,
                                  self.checkpoint_score_order)


@public
@dataclass
class DataConfig:
    """Which of the datasets= each worker gets a shard of; of the others it gets all rows.

    datasets_to_split: "all", or a list of names. execution_options and enable_shard_locality are
    those of Ray's engine, and do nothing."""
    datasets_to_split: Any = "all"
    execution_options: Any = None
    enable_shard_locality: bool = True

    def __post_init__(self) -> None:
        names = self.datasets_to_split
        if names != "all" and (not isinstance(names, (list, tuple))
                               or not all(isinstance(n, str) for n in names)):
            raise TypeError(f'datasets_to_split must be "all" or a list of names, not {names!r}')

    @staticmethod
    def default_ingest_options() -> Any:
        """Of execution_options, to be changed and given back."""
        from manta.data.placing import ExecutionOptions
        return ExecutionOptions()

    def splits(self, name: str) -> bool:
        return self.datasets_to_split == "all" or name in self.datasets_to_split


@public
@dataclass
class SyncConfig:
    """Taken from programs that have one: manta writes to storage_path itself, and has nothing to
    copy there."""
    upload_dir: str | None = None
    syncer: Any = "auto"
    sync_period: float = 300
    sync_timeout: float = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
    sync_on_checkpoint: bool = True
    sync_to_driver: Any = None


def check_filesystem(given: Any) -> None:
    """storage_filesystem: programs that have one pass it with the path in it."""
    if given is not None:
        raise TypeError(f"storage_filesystem: manta writes to directories, and to "
                        f"s3://BUCKET/PREFIX by storage_path alone, not through "
                        f"{type(given).__name__}")


@public
@dataclass
class RunConfig:
    """name: of the experiment, whose directory is storage_path/name; without one it is made of the
    trainer's name and the time. storage_path (= local_dir): a directory, or s3://BUCKET/PREFIX;
    without one MANTA_RESULTS, else ~/manta_results. stop: ends the run when it is reached: {metric:
    least value}, a function of (trial id, result), or an object with such a __call__ and
    stop_all(). verbose=0: print nothing; 1 and more: the progress, as ProgressCallback(1) and (2)
    show it.
    sync_config, progress_reporter and log_to_file are taken and mean nothing: checkpoints, rows and
    the output of every rank are in the run's directory."""
    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    local_dir: str | os.PathLike[str] | None = None
    callbacks: list[Any] | None = None
    stop: Any = None
    failure_config: FailureConfig | None = None
    sync_config: SyncConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    progress_reporter: Any = None
    verbose: int | None = None
    log_to_file: Any = False
    storage_filesystem: Any = None

    def __post_init__(self) -> None:
        check_filesystem(self.storage_filesystem)
        if self.name is not None and (not isinstance(self.name, str) or self.name in ("", ".", "..")
                                      or "/" in self.name or "\0" in self.name):
            raise ValueError(f"name must be the name of a directory, not {self.name!r}\n"
                             f"hint: RunConfig(name='experiment', storage_path='/path/of/results')")
        if self.storage_path is not None and self.local_dir is not None:
            raise ValueError("storage_path and local_dir are the same: give one of them")
        self.storage_path = self.storage_path if self.storage_path is not None else self.local_dir
        if self.storage_path is not None:
            _storage.staged("storage_path", self.storage_path)
        self.callbacks = _callbacks.checked(self.callbacks, of_trials=True)
        self.failure_config = _of("failure_config", self.failure_config, FailureConfig)
        self.checkpoint_config = _of("checkpoint_config", self.checkpoint_config, CheckpointConfig)
        check_stop(self.stop)
        if self.verbose is not None and not isinstance(self.verbose, int):
            raise TypeError(f"verbose must be an int, not {self.verbose!r}")

    def directory(self) -> Path:
        """Where experiments are."""
        if self.storage_path is None:
            return Path(_manta.knob("MANTA_RESULTS") or "~/manta_results").expanduser().absolute()
        return _storage.staged("storage_path", self.storage_path)

    def uri(self) -> str | None:
        """Where they are stored besides; None: nowhere."""
        return (None if self.storage_path is None
                else _storage.stored_at("storage_path", self.storage_path))


def check_stop(stop: Any) -> None:
    if stop is None or callable(stop):
        return
    if not isinstance(stop, dict):
        raise TypeError(f"stop must be a dict, a function or an object that can be called, not "
                        f"{stop!r}\nhint: stop={{\"training_iteration\": 10}}, or stop=lambda "
                        f"trial_id, result: result[\"loss\"] < 0.1")
    for name, value in stop.items():
        if not isinstance(name, str) or not isinstance(value, (int, float)):
            raise TypeError(f"stop[{name!r}] must be the least value of a metric at which the run "
                            f"ends, a number, not {value!r}")


def _of(name: str, given: Any, cls: Callable[[], T]) -> T:
    """One of that class, or a new one in the place of None."""
    if given is None:
        return cls()
    if isinstance(given, cls):  # type: ignore[arg-type]
        return given  # type: ignore[no-any-return]
    kind = getattr(cls, "__name__")
    hint = f"{kind}(**{given!r})" if isinstance(given, dict) else f"{name}={kind}(…)"
    raise TypeError(f"{name} must be a {kind}, not {given!r}\nhint: {hint}")


checked = _of

for _cls in (ScalingConfig, FailureConfig, CheckpointConfig, SyncConfig, RunConfig):
    _cls.__init__ = arguments(_cls.__init__)  # type: ignore[method-assign]

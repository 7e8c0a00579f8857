# SPDX-License-Identifier: Apache-2.0
"""The trainer of operators: each of its calls is one pass over the data, on all workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manta._front import schedule
from manta._front.meters import BATCH_SIZE
from manta._front.trainer import Trainer
from manta._names import arguments
from manta._operator.checkpoint import AutoCheckpoint, newest_in, write_file
from manta._operator.instances import Instances, Local
from manta._operator.statistics import reduced
from manta._runtime import frames

if TYPE_CHECKING:
    from manta._operator.trainable import BaseTorchTrainable


class TorchTrainer:
    """An instance of an operator class on each worker, and passes over the data.

        trainer = TorchTrainer(training_operator_cls=MyOperator, num_workers=2, config={"lr": 0.1})
        for _ in range(10):
            print(trainer.train(), trainer.validate())
        model = trainer.get_model()

    num_cpus_per_worker: None counts as 1 and lets there be more workers than CPUs; a number is
    strict: a trainer has as many workers as there is room for, up to num_workers. use_gpu: "auto"
    is True if there is a GPU for each worker. use_fp16: mixed precision. use_local: with one
    worker, the operator lives in this process. Creator functions in the place of an operator class
    are those of TrainingOperator.from_creators().
    """

    @arguments
    def __init__(self, *, training_operator_cls: Any = None,
                 initialization_hook: Callable[[], Any] | None = None,
                 config: dict[str, Any] | None = None, num_workers: int = 1,
                 num_cpus_per_worker: float | None = None, use_gpu: bool | str = "auto",
                 backend: Any = "auto", wrap_ddp: bool = True, timeout_s: float = 1800,
                 use_fp16: Any = False, use_tqdm: bool = False, add_dist_sampler: bool = True,
                 scheduler_step_freq: str | None = None, use_local: bool = False,
                 model_creator: Any = None, data_creator: Any = None, optimizer_creator: Any = None,
                 loss_creator: Any = None, scheduler_creator: Any = None,
                 serialize_data_creation: bool = True, num_replicas: int | None = None,
                 logdir: str | Path | None = None):
        from manta._frameworks.torch import operator
        schedule.check(scheduler_step_freq)
        self.max_replicas = num_workers if num_replicas is None else num_replicas
        self.config = _rounded(config or {}, self.max_replicas)
        self.use_gpu = (operator.gpus_for(self.max_replicas) if use_gpu == "auto"
                        else bool(use_gpu))
        self.scheduler_step_freq = scheduler_step_freq
        if model_creator is not None or optimizer_creator is not None:
            training_operator_cls = operator.operator_of(
                operator.Creators(model_creator, optimizer_creator, data_creator, loss_creator,
                                  scheduler_creator, serialize_data_creation),
                training_operator_cls)
        self.training_operator_cls = operator.checked(training_operator_cls)
        options = {"use_gpu": self.use_gpu, "use_fp16": use_fp16, "use_tqdm": use_tqdm,
                   "wrap_ddp": wrap_ddp, "add_dist_sampler": add_dist_sampler,
                   "scheduler_step_freq": scheduler_step_freq}
        made = operator.Runner, (self.training_operator_cls, self.config, options)
        self._auto = AutoCheckpoint(logdir)
        if use_local and self.max_replicas == 1:
            self._all: Instances | None = Local(*made, initialization_hook)
        else:
            trainer = Trainer(_backend(backend, timeout_s), self.max_replicas, self.use_gpu or None,
                              cpus_per_worker=num_cpus_per_worker, logdir=logdir)
            self._all = Instances(trainer, *made, initialization_hook)
        self._start()

    @frames.folded
    def _start(self) -> None:
        self._instances.start()

    @property
    def _instances(self) -> Instances:
        if self._all is None:
            raise RuntimeError("this trainer was shut down")
        return self._all

    @property
    def num_workers(self) -> int:
        """How many there were in the last call."""
        return self._instances.world

    # --- passes -----------------------------------------------------------------------------------

    @frames.folded
    @arguments
    def train(self, num_steps: int | None = None, profile: bool = False,
              reduce_results: bool = True, max_retries: int = 3,
              info: dict[str, Any] | None = None, dataset: Any = None,
              checkpoint: str | Path | None = None) -> Any:
        """One epoch, or the next num_steps batches of each worker; its metrics, of all workers in
        one dict or, without reduce_results, a list by rank.

        max_retries: when a worker is lost, the others end too, and the pass is made again with as
        many workers as there is room for, from the state before it; so often. The state is kept in
        this process. checkpoint: "auto" writes it to a file as well, before every pass; a path is
        that of the checkpoint to try again from instead. dataset: what has get_shard(rank), read in
        the place of the registered loader."""
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ValueError(f"max_retries must be an int >= 0, not {max_retries!r}")
        if dataset is not None and not hasattr(dataset, "get_shard"):
            raise TypeError(f"dataset must have get_shard(rank), not {dataset!r}")
        keep = max_retries > 0 or checkpoint == "auto"
        self._prepare_retries(max_retries, keep, checkpoint)
        answers = self._instances.attempt(max_retries, "train", num_steps, profile, info, dataset,
                                          keep)
        if keep:
            self._instances.keep(answers[0][1])
        else:
            self._instances.drop()
        stats = [found for found, _ in answers]
        return reduced(stats) if reduce_results else stats

    def _prepare_retries(self, retries: int, keep: bool, checkpoint: Any) -> None:
        """The state that a pass is made again from."""
        if checkpoint is not None and checkpoint != "auto":
            self._instances.begin_from(newest_in(checkpoint).read_bytes())
        elif not keep:
            self._instances.drop()
        else:
            state = self._instances.newest(retries)
            if checkpoint == "auto":
                self._auto.write(state)

    @property
    def auto_checkpoint_path(self) -> Path | None:
        """Where train(checkpoint="auto") has written the state before the last pass."""
        return self._auto.path

    @frames.folded
    @arguments
    def validate(self, num_steps: int | None = None, profile: bool = False,
                 reduce_results: bool = True, info: dict[str, Any] | None = None) -> Any:
        """One pass over the validation data, without training; its metrics as train() has them."""
        answers = self._instances.reach("validate", num_steps, profile, info)
        if any(changed for _, changed in answers):
            self._instances.touch()
        stats = [found for found, _ in answers]
        return reduced(stats) if reduce_results else stats

    @frames.folded
    def update_scheduler(self, metric: Any) -> None:
        """scheduler.step(metric) of all schedulers, such as ReduceLROnPlateau."""
        self._instances.reach("step_schedulers", metric)
        self._instances.touch()

    @frames.folded
    def apply_all_workers(self, fn: Callable[[], Any]) -> list[Any]:
        """fn() on each worker; a list by rank."""
        return self._instances.everywhere(fn)

    @frames.folded
    def apply_all_operators(self, fn: Callable[[Any], Any]) -> list[Any]:
        """fn(operator) on each worker; a list by rank."""
        found = self._instances.reach("apply", fn)
        self._instances.touch()
        return found

    # --- what was trained -------------------------------------------------------------------------

    @frames.folded
    def get_model(self, to_cpu: bool = False) -> Any:
        """The model, or a list if several were registered. It is in host memory, whatever to_cpu
        says: the GPU is its worker's."""
        models = self._instances.reach("models")[0]
        return models[0] if len(models) == 1 else models

    def get_local_operator(self) -> Any:
        """The operator itself, of a trainer with use_local."""
        if not isinstance(self._instances, Local):
            raise RuntimeError("the operators are in the workers\nhint: apply_all_operators(f) "
                               "calls f(operator) there; TorchTrainer(use_local=True, "
                               "num_workers=1) has its operator in this process")
        return self._instances.instance.operator

    @frames.folded
    def state_dict(self) -> dict[str, Any]:
        """Of rank 0: epoch, models, optimizers, schedulers, and the operator's own."""
        from manta._frameworks.torch import operator
        return operator.read(self._instances.newest())

    @frames.folded
    def load_state_dict(self, state_dict: dict[str, Any], blocking: bool = True) -> None:
        """On all workers; they have it when this returns."""
        from manta._frameworks.torch import operator
        self._load(operator.write(state_dict))

    def _load(self, state: bytes) -> None:
        self._instances.begin_from(state)
        self._instances.reach("load", state)
        self._instances.keep(state)

    @frames.folded
    def save(self, checkpoint: str | Path) -> str:
        """Writes the state to a file that torch.load opens; its path."""
        return str(write_file(Path(checkpoint).expanduser(), self._instances.newest()))

    def save_checkpoint(self, checkpoint_dir: str | Path) -> str:
        """The same in a directory, a file for each epoch."""
        where = Path(checkpoint_dir).expanduser()
        where.mkdir(parents=True, exist_ok=True)
        return self.save(where / f"checkpoint_{self.state_dict()['epoch']:06}.pt")

    @frames.folded
    def load(self, checkpoint: str | Path, trust: bool = False) -> None:
        """Continues from a file of save(), or the newest one of a directory. trust: it may contain
        objects of any class, whose code runs when they are loaded."""
        from manta._frameworks.torch import operator
        path = newest_in(checkpoint)
        self._load(operator.write(operator.read_file(path.read_bytes(), trust)))

    restore = load

    def shutdown(self, force: bool = False) -> None:
        """Ends the workers. Idempotent; no other call is possible afterwards."""
        if self._all is not None:
            self._all.shutdown()
            self._all = None

    # --- for tuning -------------------------------------------------------------------------------

    @classmethod
    def as_trainable(cls, *args: Any, override_tune_step: Callable[[Any, Any], Any] | None = None,
                     **kwargs: Any) -> type[BaseTorchTrainable]:
        """A class whose step() trains and validates once. Its config goes to the operator, over
        that of kwargs. override_tune_step(trainer, info) takes the place of the step."""
        from manta._operator.trainable import trainable_of
        return trainable_of(cls, args, kwargs, override_tune_step)


# --- arguments ------------------------------------------------------------------------------------


def _backend(name: Any, timeout_s: float) -> Any:
    from manta._frameworks.torch.config import TorchConfig
    return name if isinstance(name, TorchConfig) else TorchConfig(
        backend=None if name == "auto" else name, timeout_s=timeout_s)


def _rounded(config: dict[str, Any], workers: int) -> dict[str, Any]:
    """A batch size of all workers is a multiple of their number."""
    size = config.get(BATCH_SIZE)
    return config if size is None else {**config, BATCH_SIZE: size // workers * workers}

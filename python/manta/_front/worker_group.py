# SPDX-License-Identifier: Apache-2.0
"""Workers as a list of objects: for libraries that build on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, overload

from manta._runtime import frames, job

if TYPE_CHECKING:
    from manta._front.trainer import Trainer


class Worker:
    """One worker; what is called on it is called on its instance, if the group has a class."""

    def __init__(self, group: WorkerGroup, rank: int):
        self._group = group
        self.rank = rank

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        @frames.folded
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._group._on_rank(self.rank, job.method_of_instance, name, *args, **kwargs)
        call.__name__ = name
        return call

    @frames.folded
    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """function(*args) there; with a class, function(instance, *args)."""
        bound = self._group._trainer._bind(function)
        return self._group._on_rank(self.rank, *bound, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<worker {self.rank} of {len(self._group)}>"


class WorkerGroup(Sequence[Worker]):
    """A list of workers: those of a trainer, or, made by itself, its own."""

    def __init__(self, num_workers: Any = 1, *, trainer: Trainer | None = None,
                 actor_cls: type | None = None, actor_cls_args: Sequence[Any] = (),
                 actor_cls_kwargs: dict[str, Any] | None = None, **trainer_args: Any):
        from manta._front.trainer import Trainer
        self._trainer = trainer or Trainer(num_workers=num_workers,
                                           **{"backend": None, **trainer_args})
        self._trainer._keep_for_group()
        if actor_cls is not None:
            self._trainer.start(actor_cls, tuple(actor_cls_args), actor_cls_kwargs or {})
        else:
            self._trainer.start()

    @classmethod
    def of(cls, trainer: Trainer) -> WorkerGroup:
        """The workers of a trainer that has started."""
        group = cls.__new__(cls)
        group._trainer = trainer
        return group

    # --- as a list --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._trainer.num_workers

    @overload
    def __getitem__(self, i: int) -> Worker: ...

    @overload
    def __getitem__(self, i: slice) -> list[Worker]: ...

    def __getitem__(self, i: int | slice) -> Worker | list[Worker]:
        ranks = range(len(self))[i]
        return Worker(self, ranks) if isinstance(ranks, int) else [Worker(self, r) for r in ranks]

    def __iter__(self) -> Iterator[Worker]:
        return (Worker(self, r) for r in range(len(self)))

    # --- calls ------------------------------------------------------------------------------------

    def _on_rank(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        results = self._trainer._call(job.on_rank, rank, function, *args, **kwargs)
        return results[rank]

    @frames.folded
    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """On all workers; a list by rank."""
        return self._trainer.execute(function, *args, **kwargs)

    apply = execute

    @frames.folded
    def execute_single(self, rank_or_function: Any, *args: Any, **kwargs: Any) -> Any:
        """On one worker: execute_single(rank, function, ...), or on rank 0 without a rank."""
        if callable(rank_or_function):
            return self._trainer.execute_single(rank_or_function, *args, **kwargs)
        function, *rest = args
        return self._on_rank(rank_or_function, *self._trainer._bind(function), *rest, **kwargs)

    def shutdown(self) -> None:
        self._trainer.shutdown()

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, *error: Any) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<{len(self)} workers>"

# SPDX-License-Identifier: Apache-2.0
"""A trainer of operators as a training in steps, for tuning."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from manta._front.trainable import Bundles, Trainable


class BaseTorchTrainable(Trainable):
    """What TorchTrainer.as_trainable() gives is a subclass of this one. A step is one epoch of
    training and one pass over the validation data."""

    _trainer: Any = None

    def setup(self, config: dict[str, Any]) -> None:
        self._trainer = self._create_trainer(config)

    def _create_trainer(self, config: dict[str, Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no _create_trainer(self, config)\n"
                                  f"hint: TorchTrainer.as_trainable(…) gives a class that has")

    def step(self) -> dict[str, Any]:
        stats = self.trainer.train(max_retries=0, profile=True)
        found = self.trainer.validate(profile=True)
        profile = {**stats.pop("profile"), **found.pop("profile")}
        return {**stats, **found, "profile": profile}

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        path: str = self.trainer.save(os.path.join(checkpoint_dir, "trainer.checkpoint"))
        return path

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.trainer.load(checkpoint)

    def cleanup(self) -> None:
        if self._trainer is not None:
            self._trainer.shutdown()

    @property
    def trainer(self) -> Any:
        return self._trainer


def trainable_of(trainer_cls: type, args: tuple[Any, ...], kwargs: dict[str, Any],
                 step: Callable[[Any, Any], Any] | None) -> type[BaseTorchTrainable]:
    """The class that as_trainable() gives."""
    if step is not None and len(inspect.signature(step).parameters) != 2:
        raise ValueError(f"override_tune_step must take two arguments, the trainer and a dict, "
                         f"which {step!r} does not")
    own_step = step

    class TorchTrainable(BaseTorchTrainable):
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Bundles:
            return bundles({**kwargs, **config})

        def step(self) -> dict[str, Any]:
            if own_step is None:
                return super().step()
            found: dict[str, Any] = own_step(self.trainer, {"iteration": self.training_iteration})
            return found

        def _create_trainer(self, config: dict[str, Any]) -> Any:
            whole = {**(kwargs.get("config") or {}), **config}
            return trainer_cls(*args, **{**kwargs, "config": whole})

    return TorchTrainable


class PyTorchTrainable(BaseTorchTrainable):
    """Its config is the arguments of PyTorchTrainer, with which a tuner tries others."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Bundles:
        return bundles({**config, "num_workers": config.get("num_replicas", 1)})

    def _create_trainer(self, config: dict[str, Any]) -> Any:
        from manta._operator.creators import PyTorchTrainer
        return PyTorchTrainer(**config)


def bundles(arguments: dict[str, Any]) -> Bundles:
    """One CPU of the driver, and what each worker of a trainer with these arguments reserves."""
    each = {"CPU": float(arguments.get("num_cpus_per_worker") or 1),
            "GPU": float(arguments.get("use_gpu") is True)}
    return [{"CPU": 1.0}, *(dict(each) for _ in range(arguments.get("num_workers", 1)))]

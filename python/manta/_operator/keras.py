# SPDX-License-Identifier: Apache-2.0
"""The trainer of Keras models: functions that make model and data, and fit() on all workers.

A process cannot leave a cluster of TensorFlow and join another: a call is a run, in fresh
processes, which make the model again and give it the weights and the optimizer's variables that the
driver keeps. What is done about lost workers, the runtime does.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manta._front import session
from manta._front.trainable import Bundles, Trainable
from manta._front.trainer import Trainer
from manta._names import arguments
from manta._operator.checkpoint import write_file
from manta._operator.trainable import bundles
from manta._runtime import frames

_LEGACY = "TF_USE_LEGACY_KERAS"  # fit() with a strategy is that of tf_keras
_FRAMEWORK = "tensorflow"


class TFTrainer:
    """model_creator(config) returns a compiled model, data_creator(config) the data for training
    and for validation. config may have fit_config and evaluate_config, arguments of fit() and
    evaluate(). num_replicas: how many workers. verbose: rank 0 shows Keras's progress.

    With several workers Keras is tf_keras, if it is installed and TF_USE_LEGACY_KERAS does not say
    otherwise: that of Keras 3 has no fit() for them."""

    @arguments
    def __init__(self, model_creator: Callable[..., Any], data_creator: Callable[..., Any],
                 config: dict[str, Any] | None = None, num_replicas: int | None = None,
                 num_cpus_per_worker: float | None = None, use_gpu: bool = False,
                 verbose: bool = False, num_workers: int | None = None,
                 logdir: str | Path | None = None):
        self.model_creator, self.data_creator = model_creator, data_creator
        self.config = {} if config is None else config
        self.num_replicas = num_workers or num_replicas or 1
        self.verbose = verbose
        self._state: dict[str, Any] | None = None
        if self.num_replicas > 1 and importlib.util.find_spec("tf_keras"):
            os.environ.setdefault(_LEGACY, "1")
        self._trainer: Trainer | None = Trainer(
            _FRAMEWORK, self.num_replicas, use_gpu or None, cpus_per_worker=num_cpus_per_worker,
            logdir=logdir, name="keras")

    @frames.folded
    def train(self) -> dict[str, Any]:
        """fit() once; the last values of its history, each as train_NAME."""
        stats, self._state = self._run(_train)
        return dict(stats)

    @frames.folded
    def validate(self) -> dict[str, Any]:
        """evaluate() once; each value as validation_NAME."""
        return dict(self._run(_validate))

    def _run(self, function: Callable[..., Any]) -> Any:
        if self._trainer is None:
            raise RuntimeError("this trainer was shut down")
        call = _Pass(function, self.model_creator, self.data_creator, self.config, self.verbose)
        return self._trainer.run(call, checkpoint=self._state)[0]

    @frames.folded
    def get_model(self) -> Any:
        """A model that this process makes, with the weights that were trained."""
        model = self.model_creator(self.config)
        if self._state is not None:
            model.set_weights(self._state["weights"])
        return model

    def save(self, checkpoint: str | Path) -> str:
        """Writes weights and optimizer to a file that numpy.load opens; its path."""
        import io

        import numpy
        state = self._state or {"epoch": 0, "weights": [], "optimizer": []}
        arrays = {f"{name}.{i:06}": array for name in ("weights", "optimizer")
                  for i, array in enumerate(state[name])}
        file = io.BytesIO()
        numpy.savez(file, epoch=state["epoch"], **arrays)
        return str(write_file(Path(checkpoint).expanduser(), file.getvalue()))

    def restore(self, checkpoint: str | Path) -> None:
        """Continues from a file of save()."""
        import numpy
        with numpy.load(Path(checkpoint).expanduser(), allow_pickle=False) as file:
            found = {name: [file[key] for key in sorted(file.files) if key.startswith(f"{name}.")]
                     for name in ("weights", "optimizer")}
            epoch = int(file["epoch"])
        self._state = {"epoch": epoch, **found} if found["weights"] else None

    load = restore

    def shutdown(self) -> None:
        """Ends the workers. Idempotent; what was trained can still be had."""
        if self._trainer is not None:
            self._trainer.shutdown()
            self._trainer = None


class TFTrainable(Trainable):
    """Its config is the arguments of TFTrainer; trainer_config is that of the model."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Bundles:
        return bundles({**config, "num_workers": config.get("num_replicas", 1)})

    def setup(self, config: dict[str, Any]) -> None:
        named = {k: v for k, v in config.items() if k != "trainer_config"}
        self.trainer = TFTrainer(**named, config=config.get("trainer_config", {}))

    def step(self) -> dict[str, Any]:
        return {**self.trainer.train(), **self.trainer.validate()}

    def save_checkpoint(self, checkpoint_dir: str) -> str:
        return self.trainer.save(os.path.join(checkpoint_dir, "model"))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.trainer.restore(checkpoint)

    def cleanup(self) -> None:
        self.trainer.shutdown()


# --- in a worker ----------------------------------------------------------------------------------


class _Pass:
    """A train function: makes the model and the data, and calls fit() or evaluate()."""

    def __init__(self, function: Callable[..., Any], model_creator: Any, data_creator: Any,
                 config: dict[str, Any], verbose: bool):
        self.function, self.model_creator, self.data_creator = function, model_creator, data_creator
        self.config, self.verbose = config, verbose

    def __call__(self) -> Any:
        tf = importlib.import_module(_FRAMEWORK)
        several = session.world_size() > 1
        scope = tf.distribute.MultiWorkerMirroredStrategy().scope() if several else (
            contextlib.nullcontext())  # before all else of TensorFlow's
        state = session.load_checkpoint()
        train, validation = self.data_creator(self.config)
        with scope:
            model = self.model_creator(self.config)
            if state is not None:
                _restore(model, state)
        found = self.function(self, model, train, validation, state)
        return found if session.world_rank() == 0 else None

    def options(self, name: str) -> dict[str, Any]:
        """Arguments of fit() or evaluate()."""
        shown = self.verbose and session.world_rank() == 0
        return {"verbose": int(shown), **self.config.get(name, {})}


def _train(call: _Pass, model: Any, train: Any, validation: Any,
           state: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    history = model.fit(train, **call.options("fit_config"))
    stats = {f"train_{name}": values[-1] for name, values in history.history.items()}
    # Reading a variable of a strategy may need all ranks: each of them reads.
    return stats, {"epoch": (state or {}).get("epoch", 0) + 1, "weights": model.get_weights(),
                   "optimizer": [v.numpy() for v in _variables(model.optimizer)]}


def _validate(call: _Pass, model: Any, train: Any, validation: Any,
              state: dict[str, Any] | None) -> dict[str, Any]:
    found = model.evaluate(validation, return_dict=True, **call.options("evaluate_config"))
    return {f"validation_{name}": value for name, value in found.items()}


def _variables(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)


def _restore(model: Any, state: dict[str, Any]) -> None:
    model.set_weights(state["weights"])
    if hasattr(model.optimizer, "build"):
        model.optimizer.build(model.trainable_variables)
    variables = _variables(model.optimizer)
    if len(variables) != len(state["optimizer"]):
        raise ValueError(f"the state has {len(state['optimizer'])} variables of the optimizer, "
                         f"this one has {len(variables)}")
    for variable, value in zip(variables, state["optimizer"]):
        variable.assign(value)

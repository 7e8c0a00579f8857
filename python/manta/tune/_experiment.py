# SPDX-License-Identifier: Apache-2.0
"""Experiments as objects, and trainables by names: how the first versions of the API said it."""

from __future__ import annotations

from typing import Any

_registered: dict[str, Any] = {}


class Experiment:
    """The arguments of tune.run as an object; `run` is the trainable, or the name that
    register_trainable has given it."""

    def __init__(self, name: str, run: Any, **options: Any):
        self.name = name
        self.options = {"name": name, "run_or_experiment": run, **_renamed(options)}

    @classmethod
    def from_json(cls, name: str, spec: dict[str, Any]) -> Experiment:
        """Out of a dict with the same names."""
        if "run" not in spec:
            raise ValueError(f"the experiment {name!r} has no 'run', what is tuned")
        return cls(name, **spec)


class ExportFormat:
    """Names for export_formats of tune.run."""
    CHECKPOINT, MODEL, ONNX, H5 = "checkpoint", "model", "onnx", "h5"


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    older = {"repeat": "num_samples", "trial_resources": "resources_per_trial"}
    return {older.get(k, k): v for k, v in options.items()}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """From here on tune.run(name) runs it."""
    if not isinstance(name, str) or not callable(trainable):
        raise TypeError("register_trainable takes a name and a function or a class")
    _registered[name] = trainable


def registered(trainable: Any) -> Any:
    """The trainable of that name, or what was given."""
    if not isinstance(trainable, str):
        return trainable
    if trainable not in _registered:
        known = ", ".join(sorted(_registered)) or "none"
        raise ValueError(f"no trainable is registered as {trainable!r}; there are: {known}\n"
                         f"hint: tune.register_trainable({trainable!r}, function)")
    return _registered[trainable]


def run_experiments(experiments: Any, **options: Any) -> list[Any]:
    """Runs one after the other: an Experiment, a list of them, or {name: {"run": …, …}}. All their
    trials."""
    from manta.tune._run import run
    if isinstance(experiments, dict):
        experiments = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    listed = experiments if isinstance(experiments, (list, tuple)) else [experiments]
    return [t for e in listed for t in run(e, **options).trials]

# SPDX-License-Identifier: Apache-2.0
"""Callbacks for lightgbm.train() inside of a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from manta._front import refuse as _refuse
from manta.tune import _session

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


class TuneReportCheckpointCallback:
    """Reports what every round measures ("eval-binary_logloss"), under the same names or others. A
    checkpoint, the model in the file `filename`, is saved with the last round, and every
    `frequency` rounds."""

    CHECKPOINT_NAME = "model.txt"
    order = 20  # after those of LightGBM that measure

    def __init__(self, metrics: Any = None, filename: str = CHECKPOINT_NAME, frequency: int = 0,
                 checkpoint_at_end: bool = True, results_postprocessing_fn: Any = None):
        named = metrics if isinstance(metrics, dict) else None
        self._metrics = named or {m: m for m in ([metrics] if isinstance(metrics, str)
                                                 else metrics or ())}
        self._filename, self._every, self._at_end = filename, frequency, checkpoint_at_end
        self._change = results_postprocessing_fn

    @classmethod
    def get_model(cls, checkpoint: Any, filename: str = CHECKPOINT_NAME) -> Any:
        """The model of a checkpoint of this callback."""
        import lightgbm  # type: ignore[import-not-found,import-untyped,unused-ignore]
        return lightgbm.Booster(model_file=str(Path(checkpoint.to_directory(), filename)))

    def __call__(self, env: Any) -> None:
        logged = {f"{data}-{name}": value for data, name, value, *_ in env.evaluation_result_list}
        if not logged:
            return
        wanted = self._metrics or {k: k for k in logged}
        row = {ours: logged[theirs] for ours, theirs in wanted.items()}
        if self._change is not None:
            row = self._change(row)
        last = env.iteration == env.end_iteration - 1
        if self._every and (env.iteration + 1) % self._every == 0 or last and self._at_end:
            with _session.checkpoint_dir() as where:
                env.model.save_model(str(Path(where, self._filename)))
        _session.report(row)


class TuneReportCallback(TuneReportCheckpointCallback):
    """The same without checkpoints."""

    def __init__(self, metrics: Any = None, results_postprocessing_fn: Any = None):
        super().__init__(metrics, frequency=0, checkpoint_at_end=False,
                         results_postprocessing_fn=results_postprocessing_fn)


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""Callbacks for xgboost.train() inside of a trial."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from manta.tune import _session

if TYPE_CHECKING:
    TrainingCallback: Any = object
else:
    try:
        from xgboost.callback import TrainingCallback
    except ModuleNotFoundError:  # said when a callback is made
        TrainingCallback = object


class TuneReportCheckpointCallback(TrainingCallback):  # type: ignore[misc,unused-ignore]
    """Reports what every round measures ("eval-logloss"), under the same names or others, and every
    `frequency` rounds a checkpoint: the model in the file `filename`. 0: none."""

    CHECKPOINT_NAME = "model.ubj"

    def __init__(self, metrics: Any = None, filename: str = CHECKPOINT_NAME, frequency: int = 5,
                 checkpoint_at_end: bool = True, results_postprocessing_fn: Any = None):
        if TrainingCallback is object:
            raise ModuleNotFoundError(f"{type(self).__name__} needs XGBoost\nhint: pip install "
                                      f"xgboost", name="xgboost")
        named = metrics if isinstance(metrics, dict) else None
        self._metrics = named or {m: m for m in ([metrics] if isinstance(metrics, str)
                                                 else metrics or ())}
        self._filename, self._every, self._at_end = filename, frequency, checkpoint_at_end
        self._change = results_postprocessing_fn
        self._row: dict[str, Any] = {}
        self._saved = -1

    @classmethod
    def get_model(cls, checkpoint: Any, filename: str = CHECKPOINT_NAME) -> Any:
        """The model of a checkpoint of this callback."""
        import xgboost  # type: ignore[import-not-found,unused-ignore]
        booster = xgboost.Booster()
        booster.load_model(str(Path(checkpoint.to_directory(), filename)))
        return booster

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        logged = {f"{data}-{name}": values[-1] for data, metrics in evals_log.items()
                  for name, values in metrics.items()}
        wanted = self._metrics or {k: k for k in logged}
        self._row = {ours: logged[theirs] for ours, theirs in wanted.items()}
        if self._change is not None:
            self._row = self._change(self._row)
        if self._every and (epoch + 1) % self._every == 0:
            self._save(model, epoch)
        _session.report(self._row)
        return False

    def after_training(self, model: Any) -> Any:
        last = model.num_boosted_rounds() - 1
        if self._every and self._at_end and self._saved != last and self._row:
            self._save(model, last)
            _session.report(self._row)
        return model

    def _save(self, model: Any, epoch: int) -> None:
        self._saved = epoch
        with _session.checkpoint_dir() as where:
            model.save_model(str(Path(where, self._filename)))


class TuneReportCallback(TuneReportCheckpointCallback):
    """The same without checkpoints."""

    def __init__(self, metrics: Any = None, results_postprocessing_fn: Any = None):
        super().__init__(metrics, frequency=0, checkpoint_at_end=False,
                         results_postprocessing_fn=results_postprocessing_fn)

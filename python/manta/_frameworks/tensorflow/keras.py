# SPDX-License-Identifier: Apache-2.0
"""A callback of Keras's fit(), which reports and saves."""

from __future__ import annotations

import functools
from typing import Any, Iterable, Mapping

import tensorflow as tf

from manta._frameworks.tensorflow.checkpoint import TensorflowCheckpoint
from manta._front.fit import context

_EVENTS = ("train_begin", "train_end", "epoch_begin", "epoch_end", "train_batch_begin",
           "train_batch_end", "test_begin", "test_end", "test_batch_begin", "test_batch_end",
           "predict_begin", "predict_end", "predict_batch_begin", "predict_batch_end")
_OLDER = {"batch_begin": "train_batch_begin", "batch_end": "train_batch_end"}


class ReportCheckpointCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """model.fit(…, callbacks=[ReportCheckpointCallback()]) reports Keras's logs and saves the whole
    model at the end of every epoch.

    checkpoint_on, report_metrics_on: an event ("epoch_end", "train_batch_end", …) or a list of
    them; a checkpoint is saved with a report, so its events are among those. metrics: names of
    Keras's logs, or {name of the report: name of Keras's}; None: all of them."""

    def __init__(self, checkpoint_on: str | Iterable[str] = "epoch_end",
                 report_metrics_on: str | Iterable[str] = "epoch_end",
                 metrics: str | Iterable[str] | Mapping[str, str] | None = None):
        super().__init__()
        self._saves = _events("checkpoint_on", checkpoint_on)
        reports = _events("report_metrics_on", report_metrics_on)
        if missing := self._saves - reports:
            raise ValueError(f"checkpoint_on has {', '.join(sorted(missing))}, which "
                             f"report_metrics_on has not: a checkpoint belongs to a report")
        self._metrics = [metrics] if isinstance(metrics, str) else metrics
        for event in reports:  # no others: Keras prepares logs for every method that it finds
            setattr(self, f"on_{event}", functools.partial(self._on, event))

    def _on(self, event: str, *args: Any, logs: dict[str, Any] | None = None) -> None:
        """Keras gives the number of the epoch or batch, if there is one, and its logs."""
        given = logs if logs is not None else args[-1] if args else None
        saved = TensorflowCheckpoint.from_model(self.model) if event in self._saves else None
        context.report(self._chosen(given if isinstance(given, dict) else {}), checkpoint=saved)

    def _chosen(self, logs: dict[str, Any]) -> dict[str, Any]:
        if self._metrics is None:
            return {**logs}
        pairs = (self._metrics.items() if isinstance(self._metrics, Mapping)
                 else ((name, name) for name in self._metrics))
        wanted = list(pairs)
        if missing := [name for _, name in wanted if name not in logs]:
            raise ValueError(f"ReportCheckpointCallback(metrics=…): Keras has no "
                             f"{', '.join(missing)}\nhint: its logs are {', '.join(logs)}")
        return {name: logs[theirs] for name, theirs in wanted}


def _events(argument: str, given: str | Iterable[str]) -> set[str]:
    names = [given] if isinstance(given, str) else list(given)
    found = {_OLDER.get(name, name) for name in names}
    if wrong := found - set(_EVENTS):
        raise ValueError(f"ReportCheckpointCallback({argument}=…): there is no "
                         f"{', '.join(sorted(wrong))}\nhint: the events are {', '.join(_EVENTS)}")
    return found

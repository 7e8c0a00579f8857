# SPDX-License-Identifier: Apache-2.0
"""Callbacks that send the reports of a run to an experiment tracker. The process of the run's sinks
does it (manta/sink.h): a server that is down, slow or frozen delays nothing, and what it missed is
sent later."""

from __future__ import annotations

import sys
from typing import Any, Iterable

from manta._front.sinks import Aggregate, SinkCallback, Workers
from manta._names import public


@public
class MlflowCallback(SinkCallback):
    """A run of MLflow: the config as params, the numbers of the reports as metrics, tags, and the
    status at the end; save_artifact: the files of the run's directory, too. tracking_uri: without
    one MLFLOW_TRACKING_URI. An http:// or https:// server is spoken to directly; any other store is
    opened by the mlflow package in a process of its own. After a revival the MLflow run is the
    same, and an iteration is there once. `manta mlflow push RUN` sends what is missing."""

    _kind = "mlflow"

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None,
                 experiment_id: str | None = None, experiment_name: str | None = None,
                 tags: dict[str, Any] | None = None, save_artifact: bool = False, *,
                 run_name: str | None = None, run_id: str | None = None,
                 tracking_token: str | None = None, create_experiment_if_not_exists: bool = True,
                 logdir: str | None = None, worker_to_log: Workers = 0,
                 workers_to_log: Workers = 0, aggregate: Aggregate = None):
        super().__init__(None, None, worker_to_log if worker_to_log != 0 else workers_to_log,
                         aggregate=aggregate)
        if experiment_id is not None:
            raise ValueError("experiment_id: manta finds experiments by their names\n"
                             "hint: MlflowCallback(experiment_name=…)")
        if tracking_token is not None:
            raise ValueError("tracking_token would be written into the run's directory\n"
                             "hint: export MLFLOW_TRACKING_TOKEN=…")
        self._options |= _given(tracking_uri=tracking_uri, experiment_name=experiment_name,
                                run_name=run_name, run_id=run_id, tags=tags,
                                save_artifact=bool(save_artifact) or None)


@public
class WandbCallback(SinkCallback):
    """A run of Weights & Biases, by the wandb package in a process of its own, with its login and
    its WANDB_* variables. The id of the W&B run is that of this run, also after a revival.
    mode="offline" keeps it in the run's directory, for `wandb sync`. Further arguments of
    wandb.init that are taken: entity, name, tags."""

    _kind = "wandb"

    def __init__(self, project: str | None = None, group: str | None = None, *,
                 entity: str | None = None, name: str | None = None,
                 tags: Iterable[str] | None = None, mode: str | None = None,
                 worker_to_log: Workers = 0, workers_to_log: Workers = 0,
                 aggregate: Aggregate = None):
        super().__init__(None, None, worker_to_log if worker_to_log != 0 else workers_to_log,
                         aggregate=aggregate)
        self._options |= _given(project=project, group=group, entity=entity, name=name,
                                tags=None if tags is None else [str(t) for t in tags], mode=mode)


MLflowLoggerCallback = MlflowCallback
WandbLoggerCallback = WandbCallback


def _given(**options: Any) -> dict[str, Any]:
    """The interpreter is this one: it has the packages that the program has."""
    return {"python": sys.executable, **{k: v for k, v in options.items() if v is not None}}

# SPDX-License-Identifier: Apache-2.0
"""Callbacks that send the reports of a run to an experiment tracker. The process of the run's sinks
does it (manta/sink.h): a server that is down, slow or frozen delays nothing, and what it missed is
sent later."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Iterable

from manta._front.sinks import Aggregate, SinkCallback, Workers
from manta._names import public


@public
class MlflowCallback(SinkCallback):
    """A run of MLflow: the config as params, the numbers of the reports as metrics, tags, and the
    status at the end; save_artifact: the files of the run's directory, too. tracking_uri: without
    one MLFLOW_TRACKING_URI. An http:// or https:// server is spoken to directly; any other store is
    opened by the mlflow package in a process of its own. After a revival the MLflow run is the
    same, and an iteration is there once. `manta mlflow push RUN` sends what is missing. In an
    experiment each trial is a run. tracking_token becomes MLFLOW_TRACKING_TOKEN: it is not written
    to disk. registry_uri and log_params_on_trial_end change nothing. By position the arguments are
    those of Ray; MlflowCallback("experiment", "http://…") is an experiment on a server, too."""

    _kind = "mlflow"

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None,
                 experiment_id: str | None = None, experiment_name: str | None = None,
                 tags: dict[str, Any] | None = None, save_artifact: bool = False, *,
                 run_name: str | None = None, run_id: str | None = None,
                 tracking_token: str | None = None, log_params_on_trial_end: bool = False,
                 create_experiment_if_not_exists: bool = True,
                 logdir: str | None = None, worker_to_log: Workers = 0,
                 workers_to_log: Workers = 0, aggregate: Aggregate = None):
        super().__init__(None, None, worker_to_log if worker_to_log != 0 else workers_to_log,
                         aggregate=aggregate)
        if experiment_name is None and _is_server(registry_uri) and _is_name(tracking_uri):
            experiment_name, tracking_uri = tracking_uri, registry_uri
        if tracking_token is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
        self._options |= _given(tracking_uri=tracking_uri, experiment_name=experiment_name,
                                experiment_id=None if experiment_id is None else str(experiment_id),
                                run_name=run_name, run_id=run_id, tags=tags,
                                save_artifact=bool(save_artifact) or None)


@public
class WandbCallback(SinkCallback):
    """A run of Weights & Biases, by the wandb package in a process of its own, with its login and
    its WANDB_* variables. The id of the W&B run is that of this run, also after a revival; in an
    experiment each trial is a run. mode="offline" keeps it in the run's directory, for `wandb
    sync`. excludes: metrics and parameters that are not sent. upload_checkpoints: those on disk at
    the end, as artifacts. api_key becomes WANDB_API_KEY and is not written to disk; api_key_file
    has it. Further arguments are those of wandb.init. log_config and upload_timeout change
    nothing: the config is sent once."""

    _kind = "wandb"

    def __init__(self, project: str | None = None, group: str | None = None,
                 api_key_file: str | os.PathLike[str] | None = None, api_key: str | None = None,
                 excludes: Iterable[str] | None = None, log_config: bool = False,
                 upload_checkpoints: bool = False, save_checkpoints: bool = False,
                 upload_timeout: int = 1800, *,
                 entity: str | None = None, name: str | None = None,
                 tags: Iterable[str] | None = None, mode: str | None = None,
                 worker_to_log: Workers = 0, workers_to_log: Workers = 0,
                 aggregate: Aggregate = None, **init: Any):
        super().__init__(None, None, worker_to_log if worker_to_log != 0 else workers_to_log,
                         aggregate=aggregate)
        if api_key is not None:
            os.environ["WANDB_API_KEY"] = api_key
        if api_key_file is not None:
            api_key_file = str(Path(api_key_file).expanduser().absolute())
        self._options |= _given(project=project, group=group, entity=entity, name=name, mode=mode,
                                tags=None if tags is None else [str(t) for t in tags],
                                api_key_file=api_key_file, init=_plain(init) or None,
                                excludes=[str(e) for e in excludes or ()] or None,
                                upload_checkpoints=upload_checkpoints or save_checkpoints or None)


MLflowLoggerCallback = MlflowCallback
WandbLoggerCallback = WandbCallback


def _is_server(uri: Any) -> bool:
    return isinstance(uri, str) and uri.startswith(("http://", "https://"))


def _is_name(given: Any) -> bool:
    """Not a URI, and not a path: a word, as an experiment has."""
    return isinstance(given, str) and not set(given) & set(":/\\") and given != "databricks"


def _plain(init: dict[str, Any]) -> dict[str, Any]:
    """It goes to another process as JSON."""
    try:
        return dict(json.loads(json.dumps(init)))
    except TypeError as e:
        raise TypeError(f"an argument of wandb.init cannot be sent to another process: {e}\nhint: "
                        f"WandbCallback takes numbers, texts, lists and dicts") from None


def _given(**options: Any) -> dict[str, Any]:
    """The interpreter is this one: it has the packages that the program has."""
    return {"python": sys.executable, **{k: v for k, v in options.items() if v is not None}}

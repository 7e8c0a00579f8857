# SPDX-License-Identifier: Apache-2.0
"""What a train function calls to log to a tracker by itself, with the user's package in its worker.
By default rank 0 does; on other ranks the calls do nothing. A worker that is revived goes on with
the tracker's run."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manta import _manta
from manta._front import session as _session

_TAG = "manta.worker"
_active: list[Callable[[bool], Any]] = []  # ends of the runs that are active in this process


def end(raised: BaseException | None) -> None:
    """After a trial: what it has set up ends with it, well unless it raised. One that is stopped
    has not failed."""
    well = not isinstance(raised, Exception) or isinstance(raised, _manta.Error)
    while _active:
        _active.pop()(well)


class _Nothing:
    """Takes every call, and does nothing: `mlflow` on other ranks than 0."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Nothing()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass


def _leaves(config: Any, above: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in (config or {}).items():
        if isinstance(value, dict) and value:
            out |= _leaves(value, f"{above}{key}/")
        else:
            out[f"{above}{key}"] = value
    return out


def _name() -> str:
    """Of the run or the trial; with the rank, where every rank logs."""
    rank = _session.world_rank()
    name = Path(_manta.run_dir()).name if _manta.in_session() else "run"
    return f"{name}-rank-{rank}" if rank else name


def _part(name: str, config: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config without that part, and the part."""
    rest = dict(config or {})
    return rest, dict(rest.pop(name, None) or {})


def setup_mlflow(config: dict[str, Any] | None = None, tracking_uri: str | None = None,
                 registry_uri: str | None = None, experiment_id: str | None = None,
                 experiment_name: str | None = None, tracking_token: str | None = None,
                 artifact_location: str | None = None, run_name: str | None = None,
                 create_experiment_if_not_exists: bool = False,
                 tags: dict[str, Any] | None = None, rank_zero_only: bool = True) -> Any:
    """The mlflow module with a run that is active in this worker and has the config as params. On
    other ranks than 0 its calls do nothing, unless rank_zero_only=False. A part "mlflow" of the
    config has arguments that are not given."""
    if rank_zero_only and _session.world_rank() != 0:
        return _Nothing()
    config, said = _part("mlflow", config)
    tracking_uri = tracking_uri or said.get("tracking_uri")
    registry_uri = registry_uri or said.get("registry_uri")
    experiment_id = experiment_id or said.get("experiment_id")
    experiment_name = experiment_name or said.get("experiment_name")
    tracking_token = tracking_token or said.get("tracking_token") or said.get("token")
    import mlflow
    if tracking_token is not None:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri is not None:
        mlflow.set_registry_uri(registry_uri)
    experiment = _experiment(mlflow, experiment_id, experiment_name, artifact_location,
                             create_experiment_if_not_exists)
    key = str(_manta.run_dir()) + str(_session.world_rank()) if _manta.in_session() else ""
    found = mlflow.search_runs([experiment], f"tags.`{_TAG}` = '{_escaped(key)}'", max_results=1,
                               output_format="list") if key else []
    if found:
        mlflow.start_run(run_id=found[0].info.run_id)
    else:
        mlflow.start_run(experiment_id=experiment, run_name=run_name or _name(),
                         tags={**(tags or {}), **({_TAG: _escaped(key)} if key else {})})
        mlflow.log_params(_leaves(config))
    _active.append(lambda well: mlflow.end_run("FINISHED" if well else "FAILED"))
    return mlflow


def _escaped(key: str) -> str:
    return key.replace("'", "_")


def _experiment(mlflow: Any, given: str | None, name: str | None, location: str | None,
                create: bool) -> str:
    """Its id. One that is named and not there is an error, unless it may be made."""
    if given is not None:
        return str(given)
    name = name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
    found = mlflow.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    if not create:
        raise ValueError(f"there is no MLflow experiment {name!r}\nhint: "
                         f"setup_mlflow(…, create_experiment_if_not_exists=True)")
    return str(mlflow.create_experiment(name, location))


def setup_wandb(config: dict[str, Any] | None = None, api_key: str | None = None,
                api_key_file: str | os.PathLike[str] | None = None, rank_zero_only: bool = True,
                **kwargs: Any) -> Any:
    """The run of wandb.init(config=…, **kwargs) in this worker, by default named after the run or
    the trial. On other ranks than 0 its calls do nothing, unless rank_zero_only=False. A part
    "wandb" of the config has arguments that are not given."""
    if rank_zero_only and _session.world_rank() != 0:
        return _Nothing()
    config, said = _part("wandb", config)
    api_key, api_key_file = (api_key or said.pop("api_key", None),
                             api_key_file or said.pop("api_key_file", None))
    kwargs = {**said, **kwargs}
    if api_key_file is not None:
        api_key = Path(api_key_file).expanduser().read_text().strip()
    if api_key is not None:
        os.environ["WANDB_API_KEY"] = api_key
    import wandb
    name = _name()
    usual: dict[str, Any] = {"name": name, "config": config}
    if _manta.in_session():
        usual |= {"id": name.replace("/", "-"), "resume": "allow", "dir": _manta.run_dir(),
                  "group": Path(_manta.run_dir()).parent.name}
    run = wandb.init(**{**usual, **kwargs})
    _active.append(lambda well: run.finish(exit_code=0 if well else 1))
    return run


# --- older forms: what config["mlflow"] and config["wandb"] say -----------------------------------


def _mixed(function: Callable[..., Any], set_up: Callable[[dict[str, Any]], Any]
           ) -> Callable[..., Any]:
    if inspect.isclass(function):
        raise TypeError(f"the decorator takes a function, not the class {function.__name__}\n"
                        f"hint: call setup_mlflow or setup_wandb in setup(config)")

    @functools.wraps(function)
    def mixed(config: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        set_up(config)
        return function(config, *args, **kwargs)
    return mixed


def mlflow_mixin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a config: setup_mlflow(config) comes first."""
    return _mixed(function, setup_mlflow)


def wandb_mixin(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of a config: setup_wandb(config) comes first."""
    return _mixed(function, setup_wandb)


class WandbTrainableMixin:
    """For a class in steps: its run of wandb, as config["wandb"] says, is there in setup."""

    wandb: Any = None

    def __init__(self, config: dict[str, Any] | None = None, *args: Any, **kwargs: Any):
        self.wandb = setup_wandb(config)
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]

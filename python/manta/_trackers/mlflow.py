# SPDX-License-Identifier: Apache-2.0
"""A store of MLflow's that is no server, through the user's mlflow package: the calls of its REST
interface that the sink makes, answered as a server would."""

from __future__ import annotations

import os
from typing import Any

from manta._trackers import Refused


class Store:
    def __init__(self) -> None:
        self._client: Any = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        from mlflow.exceptions import MlflowException
        if asked["call"] == "open":
            from mlflow import MlflowClient
            try:
                self._client = MlflowClient(asked["uri"] or None)
            except MlflowException as e:  # no store of that kind, or none that is served any more
                raise Refused(e.message) from e
            return {}
        method = getattr(self, "_" + asked["call"].replace("/", "_").replace("-", "_"))
        try:
            return {"status": 200, "body": method(asked["body"])}
        except LookupError as e:
            return {"status": 404, "body": {"error_code": "RESOURCE_DOES_NOT_EXIST",
                                            "message": str(e)}}
        except MlflowException as e:
            return {"status": e.get_http_status_code(),
                    "body": {"error_code": e.error_code, "message": e.message}}

    # --- experiments ------------------------------------------------------------------------------

    def _experiments_get_by_name(self, body: dict[str, Any]) -> dict[str, Any]:
        found = self._client.get_experiment_by_name(body["experiment_name"])
        if found is None:
            raise LookupError(f"no experiment {body['experiment_name']}")
        return {"experiment": {"experiment_id": found.experiment_id}}

    def _experiments_create(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"experiment_id": self._client.create_experiment(body["name"])}

    # --- runs -------------------------------------------------------------------------------------

    def _runs_search(self, body: dict[str, Any]) -> dict[str, Any]:
        runs = self._client.search_runs(body["experiment_ids"], body["filter"],
                                        max_results=body["max_results"])
        return {"runs": [_run(run)["run"] for run in runs]}

    def _runs_get(self, body: dict[str, Any]) -> dict[str, Any]:
        return _run(self._client.get_run(body["run_id"]))

    def _runs_create(self, body: dict[str, Any]) -> dict[str, Any]:
        return _run(self._client.create_run(
            body["experiment_id"], start_time=body["start_time"], run_name=body["run_name"],
            tags={tag["key"]: tag["value"] for tag in body["tags"]}))

    def _runs_log_batch(self, body: dict[str, Any]) -> dict[str, Any]:
        from mlflow.entities import Metric, Param
        self._client.log_batch(
            body["run_id"],
            metrics=[Metric(m["key"], float(m["value"]), m["timestamp"], m["step"])
                     for m in body.get("metrics", ())],
            params=[Param(p["key"], p["value"]) for p in body.get("params", ())])
        return {}

    def _runs_update(self, body: dict[str, Any]) -> dict[str, Any]:
        if "end_time" in body:
            self._client.set_terminated(body["run_id"], body["status"], body["end_time"])
        else:
            self._client.update_run(body["run_id"], body["status"])
        return {}

    def _artifact(self, body: dict[str, Any]) -> dict[str, Any]:
        self._client.log_artifact(body["run_id"], os.path.join(body["root"], body["path"]),
                                  os.path.dirname(body["path"]) or None)
        return {}


def _run(run: Any) -> dict[str, Any]:
    return {"run": {"info": {"run_id": run.info.run_id, "artifact_uri": run.info.artifact_uri}}}

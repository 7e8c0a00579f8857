#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests need of an MLflow server: the calls of the sink, kept in memory.

    fake_mlflow.py [PORT [FILE]]     prints its port; GET /dump is all that it has. FILE keeps it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

API = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts/"
NAMES = re.compile(r"[/\w.\- :]*")  # as MLflow has it
experiments: dict[str, str] = {}
runs: dict[str, dict[str, Any]] = {}
files: dict[str, int] = {}
seen: dict[str, int] = {}
auth: set[str] = set()
STATE = sys.argv[2] if len(sys.argv) > 2 else ""
if STATE and os.path.exists(STATE):
    with open(STATE) as text:
        experiments, runs = json.load(text)


def keep() -> None:
    if STATE:
        with open(STATE + ".new", "w") as text:
            json.dump([experiments, runs], text)
        os.replace(STATE + ".new", STATE)


class Refused(Exception):
    def __init__(self, status: int, code: str):
        super().__init__(code)
        self.status, self.code = status, code


def info(run: dict[str, Any]) -> dict[str, Any]:
    return {"info": {"run_id": run["id"],
                     "artifact_uri": f"mlflow-artifacts:/1/{run['id']}/artifacts"}}


def get_by_name(body: Any) -> Any:
    if body["experiment_name"] not in experiments:
        raise Refused(404, "RESOURCE_DOES_NOT_EXIST")
    return {"experiment": {"experiment_id": experiments[body["experiment_name"]]}}


def create_experiment(body: Any) -> Any:
    experiments[body["name"]] = str(1 + len(experiments))
    return {"experiment_id": experiments[body["name"]]}


def search(body: Any) -> Any:
    wanted = body["filter"].removeprefix("tags.`manta.run` = '").removesuffix("'")
    found = [run for run in runs.values() if run["tags"].get("manta.run") == wanted
             and run["experiment"] in body["experiment_ids"]]
    return {"runs": [info(run) for run in found[:body["max_results"]]]}


def create(body: Any) -> Any:
    run = {"id": f"r{1 + len(runs)}", "experiment": body["experiment_id"],
           "name": body["run_name"], "status": "RUNNING", "metrics": {}, "params": {},
           "tags": {tag["key"]: tag["value"] for tag in body["tags"]}}
    runs[run["id"]] = run
    return {"run": info(run)}


def log_batch(body: Any) -> Any:
    run = runs[body["run_id"]]
    if len(body.get("metrics", ())) > 1000 or len(body.get("params", ())) > 100:
        raise Refused(400, "INVALID_PARAMETER_VALUE")
    for param in body.get("params", ()):
        assert isinstance(param["value"], str), param
        if run["params"].setdefault(param["key"], param["value"]) != param["value"]:
            raise Refused(400, "INVALID_PARAMETER_VALUE")
    for metric in body.get("metrics", ()):
        assert NAMES.fullmatch(metric["key"]) and isinstance(metric["step"], int), metric
        point = [metric["step"], metric["timestamp"], str(float(metric["value"]))]
        points = run["metrics"].setdefault(metric["key"], [])
        if point not in points:  # the key of its table has all of these
            points.append(point)
    return {}


def update(body: Any) -> Any:
    runs[body["run_id"]] |= {"status": body["status"], "end": body.get("end_time")}
    return {}


CALLS = {"experiments/get-by-name": get_by_name, "experiments/create": create_experiment,
         "runs/search": search, "runs/create": create, "runs/log-batch": log_batch,
         "runs/update": update, "runs/get": lambda body: {"run": info(runs[body["run_id"]])}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def say(self, status: int, what: Any) -> None:
        data = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer(self, call: str, body: Any) -> None:
        seen[call] = seen.get(call, 0) + 1
        auth.add(self.headers.get("Authorization", ""))
        try:
            said = CALLS[call](body)
            keep()
            self.say(200, said)
        except Refused as e:
            self.say(e.status, {"error_code": e.code, "message": f"refused {call}"})

    def do_GET(self) -> None:
        url = urlparse(self.path)
        if url.path == "/dump":
            self.say(200, {"experiments": experiments, "runs": list(runs.values()),
                           "files": files, "seen": seen, "auth": sorted(auth)})
        else:
            self.answer(url.path.removeprefix(API),
                        {k: v[0] for k, v in parse_qs(url.query).items()})

    def do_POST(self) -> None:
        self.answer(self.path.removeprefix(API), json.loads(self.body()))

    def do_PUT(self) -> None:
        assert self.path.startswith(FILES)
        files[unquote(self.path.removeprefix(FILES))] = len(self.body())
        self.say(200, {})

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0),
                                 Handler)
    print(server.server_port, flush=True)
    server.serve_forever()

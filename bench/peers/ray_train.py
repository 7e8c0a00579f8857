# SPDX-License-Identifier: Apache-2.0
"""bench/peers/ray_train.py start|fit|report|checkpoint|recover SINCE DIR [N] - Ray Train, two
workers.

Prints samples as our own programs do. start: also a second fit in the same driver. fit: of a
function that does nothing, from the start of the interpreter to its return. report: N
reports, and what a controller that looks every 50 ms makes of them. checkpoint: N times a
state_dict of 100 MB. recover: N kills in the training of bench/py/recovery.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
os.environ.setdefault("RAY_TRAIN_ENABLE_STATE_TRACKING", "0")

import ray  # noqa: E402
from ray import train  # noqa: E402
from ray.train import (Checkpoint, CheckpointConfig, FailureConfig, RunConfig,  # noqa: E402
                       ScalingConfig)
from ray.train.torch import TorchTrainer  # noqa: E402

import recovery  # noqa: E402

WHAT, SINCE, WHERE = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
N = int(sys.argv[4]) if len(sys.argv) > 4 else 1


def fit(function: Callable[..., None], config: dict[str, Any], failures: int = 0) -> None:
    TorchTrainer(function, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2),
                 run_config=RunConfig(storage_path=str(WHERE), name=f"run{time.monotonic_ns()}",
                                      checkpoint_config=CheckpointConfig(num_to_keep=2),
                                      failure_config=FailureConfig(max_failures=failures))).fit()


def when(name: str) -> int:
    """The later of both ranks' notes."""
    return max(int((WHERE / f"{name}-{rank}").read_text()) for rank in (0, 1))


def line(config: dict[str, Any]) -> None:
    recovery.note(Path(config["dir"], f"{config['name']}-{train.get_context().get_world_rank()}"))


def start() -> None:
    fit(line, {"dir": str(WHERE), "name": "first"})
    print("start_ms", (when("first") - SINCE) / 1e6)
    before = time.monotonic_ns()
    fit(line, {"dir": str(WHERE), "name": "second"})
    print("again_ms", (when("second") - before) / 1e6)
    print("fit_ms", (time.monotonic_ns() - before) / 1e6)


def fit_nothing() -> None:
    fit(lambda config: None, {})
    print("fit_ms", (time.monotonic_ns() - SINCE) / 1e6)


def reports(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    train.report({"loss": 0.5, "i": -1})
    recovery.note(Path(config["dir"], f"from-{rank}"))
    for i in range(config["n"]):
        train.report({"loss": 0.5, "i": i})
    recovery.note(Path(config["dir"], f"to-{rank}"))


def report() -> None:
    fit(reports, {"dir": str(WHERE), "n": N})
    print("rows_per_s", N / (when("to") - when("from")) * 1e9)


def checkpoints(config: dict[str, Any]) -> None:
    import torch
    model = torch.nn.Sequential(*(torch.nn.Linear(1250, 1250) for _ in range(16)))
    state = model.state_dict()
    out = []
    for _ in range(config["n"]):
        begin = time.monotonic_ns()
        if train.get_context().get_world_rank() == 0:
            with tempfile.TemporaryDirectory() as d:
                torch.save(state, os.path.join(d, "state.pt"))
                train.report({"loss": 0.5}, checkpoint=Checkpoint.from_directory(d))
            out.append(f"save_ms {(time.monotonic_ns() - begin) / 1e6}")
        else:
            train.report({"loss": 0.5})
    if out:
        Path(config["dir"], "saves").write_text("\n".join(out))


def checkpoint() -> None:
    fit(checkpoints, {"dir": str(WHERE), "n": N})
    print((WHERE / "saves").read_text())


def save(state: dict[str, Any]) -> None:
    import torch
    if train.get_context().get_world_rank() != 0:
        train.report({"at": state["at"]})
        return
    with tempfile.TemporaryDirectory() as d:
        torch.save(state, os.path.join(d, "state.pt"))
        train.report({"at": state["at"]}, checkpoint=Checkpoint.from_directory(d))


def load() -> Any:
    import torch
    saved = train.get_checkpoint()
    if not saved:
        return None
    with saved.as_directory() as d:
        return torch.load(os.path.join(d, "state.pt"))


def resume(config: dict[str, Any]) -> None:
    recovery.train(config["dir"], config["kills"], train.get_context().get_world_rank(), save, load)


def recover() -> None:
    fit(resume, {"dir": str(WHERE), "kills": N}, failures=N)
    for ms in recovery.times(str(WHERE), N):
        print("recover_ms", ms)


ray.init(include_dashboard=False, logging_level="error", log_to_driver=False,
         num_cpus=max(2, os.cpu_count() or 1))
{"start": start, "fit": fit_nothing, "report": report, "checkpoint": checkpoint,
 "recover": recover}[WHAT]()
ray.shutdown()

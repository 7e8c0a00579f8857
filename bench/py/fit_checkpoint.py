# SPDX-License-Identifier: Apache-2.0
"""bench/py/fit_checkpoint.py MB SAVES STEP_MS DIR - how long session.report(checkpoint=) holds up a
step: a dict, against a copy of the same tensors into others that are warm, in turns; and a
directory with a file of the same size that is moved. In one worker, with a training-like loop
between. DIR: on the file system of the results.
"""

import sys
from typing import Any

from manta.air import Checkpoint, RunConfig, session
from manta.train.torch import TorchTrainer


def train(config: dict[str, Any]) -> None:
    import ctypes
    import os
    import tempfile
    import time

    import torch
    lines = []

    def measure(name: str, call: Any) -> None:
        end = time.perf_counter() + config["step_ms"] / 1e3
        while time.perf_counter() < end:
            x.mm(x)
        start = time.perf_counter_ns()
        call()
        lines.append(f"{name} {(time.perf_counter_ns() - start) / 1e6}")

    def copy() -> None:
        for name, tensor in state.items():
            ctypes.memmove(copies[name].data_ptr(), tensor.data_ptr(), tensor.nbytes)

    def report() -> None:
        session.report({"loss": 0.5}, checkpoint=Checkpoint.from_dict({"model": state}))

    x = torch.randn(256, 256)
    side = int((config["mb"] * 1e6 / 16 / 4) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(16)))
    state = model.state_dict()
    copies = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    copy()
    for _ in range(3):  # three slots are made, each with its first save
        report()
    for _ in range(config["saves"]):
        measure("dict_ms", report)
        measure("copy_ms", copy)
    for _ in range(config["saves"]):
        with tempfile.TemporaryDirectory(dir=config["dir"]) as d:
            torch.save(state, os.path.join(d, "state.pt"))
            checkpoint = Checkpoint.from_directory(d, move=True)
            measure("directory_ms", lambda: session.report({"loss": 0.5}, checkpoint=checkpoint))
    session.report({"loss": 0.5, "lines": lines})


mb, saves, step_ms = (int(word) for word in sys.argv[1:4])
result = TorchTrainer(train, train_loop_config={"mb": mb, "saves": saves, "step_ms": step_ms,
                                                "dir": sys.argv[4]},
                      run_config=RunConfig(storage_path=sys.argv[4], verbose=0)).fit()
print(*result.metrics["lines"], sep="\n")

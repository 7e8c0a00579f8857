# SPDX-License-Identifier: Apache-2.0
"""bench/py/checkpoint.py MB SAVES STEP_MS DEVICE - how long saving a state_dict holds up a step.

In turns in one worker, with a training-like loop between: save_checkpoint, a copy of the same
tensors into others that are warm (of a GPU's: into pinned memory), torch.save to /dev/shm.
"""

import sys
from typing import Any

from manta import sgd
from manta.sgd import Trainer


def train(config: dict[str, Any]) -> list[str]:
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
        wait()
        start = time.perf_counter_ns()
        call()
        lines.append(f"{name} {(time.perf_counter_ns() - start) / 1e6}")

    def memcpy() -> None:
        for name, tensor in state.items():
            ctypes.memmove(copies[name].data_ptr(), tensor.data_ptr(), tensor.nbytes)

    def copy_pinned() -> None:
        for name, tensor in state.items():
            copies[name].copy_(tensor, non_blocking=True)
        wait()

    def wait() -> None:
        if gpu:
            torch.cuda.synchronize()

    device, gpu = config["device"], config["device"] == "cuda"
    x = torch.randn(256, 256, device=device)
    side = int((config["mb"] * 1e6 / 16 / 4) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(16))).to(device)
    state = model.state_dict()
    copies = {name: torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=gpu)
              for name, tensor in state.items()}
    copy = copy_pinned if gpu else memcpy
    copy()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        file = os.path.join(d, "state.pt")
        measure("first_ms", lambda: sgd.save_checkpoint(model=state))
        sgd.save_checkpoint(model=state)  # three slots are made, each with its first save
        sgd.save_checkpoint(model=state)
        for _ in range(config["saves"]):
            measure("save_ms", lambda: sgd.save_checkpoint(model=state))
            measure("copy_ms", copy)
            measure("torch_save_ms", lambda: torch.save(state, file))
    loaded = sgd.load_checkpoint()["model"]
    if not all(torch.equal(loaded[name].to(device), state[name]) for name in state):
        raise RuntimeError("what was loaded is not what was saved")
    return lines


mb, saves, step_ms = (int(word) for word in sys.argv[1:4])
device = sys.argv[4]
with Trainer(backend="torch", num_workers=1, threads_per_worker=1,
             use_gpu=device == "cuda") as trainer:
    print(*trainer.run(train, {"mb": mb, "saves": saves, "step_ms": step_ms,
                               "device": device})[0], sep="\n")

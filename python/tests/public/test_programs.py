# SPDX-License-Identifier: Apache-2.0
"""Programs that releases of Ray brought along, as they are, by `manta run --ray`. Pictures are
drawn by stand_ins/torchvision instead of fetched. It is long: `make check-all`, or

    pytest python/tests/public [-k NAME]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from published import HERE, STAND_INS, release

from manta import _command

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.deadline(700)

_MNIST = "torch_fashion_mnist_example.py train_fashion_mnist()"
_TRAIN, _TORCH = "ray/train/examples/", "ray/train/examples/pytorch/"
_AIR, _SGD = "ray/air/examples/pytorch/", "ray/util/sgd/torch/examples/"
_V2, _TUNE = "ray/util/sgd/v2/examples/", "ray/tune/examples/"

# (release, program and its arguments, what it prints). A program that asks for GPUs when it is run
# as a script is imported instead, and the call is made.
PROGRAMS = [
    ("1.7.0", f"{_V2}train_linear_example.py --smoke-test", "'loss': "),
    ("1.7.0", f"{_V2}train_fashion_mnist_example.py --smoke-test", "Loss results: "),
    ("1.9.2", f"{_TRAIN}torch_quick_start.py", "epoch: 2, loss: "),
    ("1.9.2", f"{_TRAIN}train_linear_example.py --smoke-test", "'loss': "),
    ("1.9.2", f"{_TRAIN}train_fashion_mnist_example.py --smoke-test", "Loss results: "),
    ("1.9.2", f"{_SGD}train_example.py --smoke-test", "success!"),
    ("1.13.0", f"{_TRAIN}torch_quick_start.py", "epoch: 2, loss: "),
    ("1.13.0", f"{_TRAIN}train_linear_example.py --smoke-test", "'loss': "),
    ("1.13.0", f"{_TRAIN}train_fashion_mnist_example.py --smoke-test", "Loss results: "),
    ("2.0.1", f"{_TRAIN}torch_quick_start.py", "epoch: 2, loss: "),
    ("2.0.1", f"{_TRAIN}torch_linear_example.py --smoke-test", "'loss': "),
    ("2.0.1", f"{_TRAIN}torch_fashion_mnist_example.py --smoke-test", "Accuracy: "),
    ("2.0.1", f"{_AIR}torch_linear_example.py --smoke-test", "'loss': "),
    ("2.0.1", f"{_AIR}torch_fashion_mnist_example.py --smoke-test", "Accuracy: "),
    ("2.6.3", f"{_TORCH}torch_quick_start.py", "epoch: 2, loss: "),
    ("2.6.3", f"{_TORCH}torch_linear_example.py --smoke-test", "'loss': "),
    ("2.6.3", f"{_TORCH}torch_fashion_mnist_example.py --smoke-test", "Accuracy: "),
    ("2.9.3", f"{_TORCH}torch_quick_start.py", "epoch: 2, loss: "),
    ("2.9.3", f"{_TORCH}torch_linear_example.py --smoke-test", "'loss': "),
    ("2.9.3", f"{_TORCH}{_MNIST}", "Training result: "),
    ("2.60.0", f"{_TORCH}torch_quick_start.py", "epoch: 2, loss: "),
    ("2.60.0", f"{_TORCH}torch_linear_example.py --smoke-test", "'loss': "),
    ("2.60.0", f"{_TORCH}{_MNIST}", "Training result: "),
    *((release, f"{_TUNE}{name}.py --smoke-test", said) for name, said in (
        ("async_hyperband_example", "Best hyperparameters found"),
        ("custom_func_checkpointing", "Best "), ("hyperband_example", "Best hyperparameters"),
        ("hyperband_function_example", "Best hyperparameters found were: "),
        ("logging_example", "Best hyperparameters"), ("mnist_pytorch", "Best config is: "),
        ("mnist_pytorch_trainable", "Best config is: "), ("pb2_example", "Best hyperparameters"),
        ("pbt_convnet_example", ""), ("pbt_convnet_function_example", ""),
        ("pbt_example", "Best hyperparameters found were: "),
        ("pbt_function", "Best hyperparameters found were: "),
        ("tune_basic_example", "Best hyperparameters found were: "),
        ("cifar10_pytorch", "Best trial test set accuracy: "))
      for release in ("1.13.0", "2.9.3", "2.60.0")),
    ("2.60.0", f"{_TUNE}custom_checkpointing_with_callback.py --smoke-test", "Best "),
]

# Those that need a part of manta which is not there yet. To enable one is to remove its line.
WAITS: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("version, program, said", PROGRAMS,
                         ids=[f"{v}-{p.rpartition('/')[2]}" for v, p, _ in PROGRAMS])
def test_a_published_program(version: str, program: str, said: str, tmp_path: Path) -> None:
    path, *words = program.split()
    if reason := WAITS.get((version, Path(path).name)):
        pytest.skip(reason)
    script = release(version) / path
    if words and words[0].endswith(")"):
        call = tmp_path / "call.py"
        call.write_text(f"import sys\nsys.path.insert(0, {str(script.parent)!r})\n"
                        f"import {script.stem}\n{script.stem}.{words.pop()}\n")
        script = call
    done = subprocess.run(
        [_command.path(), "run", "--ray", script, *words], cwd=tmp_path, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=600,
        env={**os.environ, "MANTA_PYTHON": sys.executable, "PYTHONPATH": f"{HERE}:{STAND_INS}",
             "RAY_RELEASE": str(release(version)), "RAY_EXAMPLES_ALONE": "1",
             "HOME": str(tmp_path)})
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert said in done.stdout, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

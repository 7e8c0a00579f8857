# SPDX-License-Identifier: Apache-2.0
"""Which GPUs a worker sees. They are declared, not there: CUDA is told of them by its variable, and
finds none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import manta  # noqa: E402
from manta import sgd  # noqa: E402
from manta._frameworks.torch import gpus  # noqa: E402
from manta.compat.ray.core import get_gpu_ids  # noqa: E402
from manta.sgd import Trainer  # noqa: E402


def test_own_comes_at_the_local_rank() -> None:
    assert gpus.order([["4"], ["2"], ["7"]]) == ["4", "2", "7"]
    assert gpus.order([["0", "1"], ["2", "3"]]) == ["0", "2", "1", "3"]


def test_a_shared_one_is_seen_once() -> None:
    assert gpus.order([["0"], ["0"], ["1"], ["1"]]) == ["0", "1"]
    assert gpus.order([[""], [""]]) == []


@pytest.fixture()
def declared() -> object:
    manta.init(num_cpus=4, num_gpus=4)
    yield
    manta.shutdown()


def look() -> tuple[str, bool, str]:
    return (os.environ["CUDA_VISIBLE_DEVICES"], str(sgd.get_device()) == "cpu",
            ",".join(map(str, get_gpu_ids())))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("each, seen", [(1, "0,1"), (2, "0,2,1,3"), (0.5, "0")])
def test_workers_see_those_of_their_run(declared: object, each: float, seen: str,
                                        tmp_path: Path) -> None:
    """And compute on the CPU, since CUDA finds none; what each has reserved is its own."""
    with Trainer("torch", num_workers=2, gpus_per_worker=each, logdir=tmp_path) as trainer:
        found = trainer.run(look)
    own = {1: ["0", "1"], 2: ["0,1", "2,3"], 0.5: ["0", "0"]}[each]
    assert found == [(seen, True, own[0]), (seen, True, own[1])]

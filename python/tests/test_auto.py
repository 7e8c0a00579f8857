# SPDX-License-Identifier: Apache-2.0
"""What goes on by itself: checkpoint="auto" after a kill, and a trainer that is restored."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Iterator

import pytest

pytest.importorskip("torch")

from manta import _manta, sgd  # noqa: E402
from manta.sgd import TorchConfig, Trainer  # noqa: E402


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(num_workers=2, quiet=True, logdir=tmp_path_factory.mktemp("runs")) as t:
        yield t


def _train(config: dict[str, Any]) -> tuple[int, list[int]]:
    """Three passes of four steps; rank 1 dies after the second, in the first attempt."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    model = sgd.prepare_model(torch.nn.Linear(4, 1))
    optimizer = sgd.prepare_optimizer(torch.optim.Adam(model.parameters()))
    rows = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    loader = sgd.prepare_data_loader(DataLoader(rows, batch_size=4))
    attempt = _manta.place()[5]
    steps = []
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
        steps.append(int(optimizer.state_dict()["state"][0]["step"]))
        if config["die"] and attempt == 0 and epoch == 1 and sgd.world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return attempt, steps


def test_what_was_prepared_goes_on_after_a_kill(trainer: Trainer) -> None:
    assert trainer.run(_train, {"die": False}, checkpoint="auto") == [(0, [4, 8, 12])] * 2
    got = trainer.run(_train, {"die": True}, checkpoint="auto")
    # The newest checkpoint is that of the start of a pass: the second or, if rank 0 was faster, the
    # third.
    assert got[0] == got[1] and got[0][0] == 1
    assert got[0][1] in ([8, 12, 16], [12, 16, 20])


def test_nothing_prepared_is_an_error_at_the_first_pass(trainer: Trainer) -> None:
    def train() -> None:
        from torch.utils.data import DataLoader
        for _ in sgd.prepare_data_loader(DataLoader([1, 2])):  # type: ignore[arg-type]
            pass

    with pytest.raises(RuntimeError, match="prepare_model"):
        trainer.run(train, checkpoint="auto")


def test_without_torch_there_is_no_auto(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="torch"):
        Trainer(backend=None, logdir=tmp_path).run(lambda: 1, checkpoint="auto")


def test_a_restored_trainer_has_the_framework_it_had(tmp_path: Path) -> None:
    with Trainer(backend=TorchConfig(backend="gloo"), logdir=tmp_path) as t:
        t.run(lambda: 1)
        assert t.latest_run_dir is not None
        assert Trainer.restore(t.latest_run_dir)._backend.framework == "torch"
    with Trainer(backend=None, logdir=tmp_path) as t:
        t.run(lambda: 1)
        assert t.latest_run_dir is not None
        assert Trainer.restore(t.latest_run_dir)._backend.framework == "none"

# SPDX-License-Identifier: Apache-2.0
"""A model in pieces whose run loses a host for good, and goes on with the workers of the other."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed.fsdp", reason="torch with FSDP is not installed")

from manta import _command, _manta, sgd  # noqa: E402
from manta.sgd import Host, Trainer  # noqa: E402

AGENT = f"exec {os.environ.get('MANTA_BIN') or _command.path()} agent --stdio"


def make() -> Any:
    """Two blocks, in sizes that no number of ranks divides evenly."""
    import torch

    def block() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 5))
    return torch.nn.Sequential(torch.nn.Linear(3, 5), block(), block(), torch.nn.Linear(5, 1))


def whole(t: Any) -> Any:
    return t.full_tensor() if hasattr(t, "full_tensor") else t


def check_bits(model: Any, optimizer: Any, name: str) -> int:
    """What was loaded is what three workers had saved. The number of steps in it."""
    parts = sgd.load_checkpoint()
    assert isinstance(parts, list) and len(parts) == 3
    saved = parts[0]["auto"] if name == "auto" else {"models": [parts[0]["model"]],
                                                     "optimizers": [parts[0]["optimizer"]]}
    for key, weight in model.state_dict().items():
        assert whole(weight).equal(saved["models"][0][key]), key
    for number, moments in optimizer.state_dict()["state"].items():
        for key, value in moments.items():
            assert whole(value).equal(saved["optimizers"][0]["state"][number][key]), (number, key)
    return int(optimizer.state_dict()["state"][0]["step"])


def die_with_host(flag: str) -> None:
    """The agent, which is the parent of what this was forked from, and does not come back."""
    Path(flag).touch()
    zygote = Path(f"/proc/{os.getppid()}/stat").read_text()
    os.kill(int(zygote.rpartition(")")[2].split()[1]), signal.SIGKILL)
    time.sleep(60)


def train_until_death(config: dict[str, Any]) -> Any:
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    model = sgd.prepare_model(make(), parallel_strategy="fsdp",
                              parallel_strategy_kwargs={"min_num_params": 0})
    optimizer = sgd.prepare_optimizer(torch.optim.Adam(model.parameters(), 0.01))
    rows = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
    loader = sgd.prepare_data_loader(DataLoader(TensorDataset(rows), batch_size=4))
    auto, attempt = config["how"] == "auto", _manta.place()[5]
    rest = None if auto else sgd.load_checkpoint_into(model=model, optimizer=optimizer)
    checked = -1
    for epoch in range(rest["epoch"] + 1 if rest else 0, 4):
        for x, in loader:
            if attempt and checked < 0:
                checked = check_bits(model, optimizer, config["how"])
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        sgd.report(epoch=epoch)
        if not auto:
            sgd.save_checkpoint(model=model.state_dict(), optimizer=optimizer.state_dict(),
                                epoch=epoch, sharded=True)
        if attempt == 0 and epoch == 2 and sgd.world_rank() == 2:
            die_with_host(config["flag"])
    return attempt, sgd.world_size(), checked, int(optimizer.state_dict()["state"][0]["step"])


@pytest.mark.deadline(180)
@pytest.mark.parametrize("how", ["auto", "by hand"])
def test_a_run_goes_on_with_fewer_workers(tmp_path: Path, how: str) -> None:
    """Three workers on two hosts; the one with the last is lost and does not come back."""
    flag = tmp_path / "gone"
    hosts = [Host("a", 2, AGENT), Host("b", 1, f"test ! -e {flag} && {AGENT}")]
    with Trainer(backend="torch", num_workers=3, hosts=hosts, logdir=tmp_path / "runs",
                 quiet=True) as trainer:
        got = trainer.run(train_until_death, {"how": how, "flag": str(flag)},
                          checkpoint="auto" if how == "auto" else None)
    # Two steps an epoch by three workers, three by two. The newest checkpoint is that of the start
    # of the third epoch or, if another rank was faster, of its end.
    assert flag.exists() and len(got) == 2 and got[0] == got[1]
    attempt, size, loaded, steps = got[0]
    assert (attempt, size) == (1, 2) and loaded in (4, 6)
    assert steps in (loaded + 3 * 2, loaded + 3, loaded + 12)

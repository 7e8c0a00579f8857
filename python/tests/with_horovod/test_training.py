# SPDX-License-Identifier: Apache-2.0
"""Training with the real Horovod, over its Gloo controller: reports, checkpoints, a rank that is
killed, processes that are kept."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import sgd
from manta.air import FailureConfig, RunConfig, ScalingConfig, session
from manta.sgd import HorovodConfig, SGDCallback, Trainer
from manta.train.horovod import HorovodTrainer

pytest.importorskip("horovod", reason="horovod is not installed")
pytestmark = pytest.mark.deadline(120)

STEPS, FATAL = 6, 3


class Rows(SGDCallback):
    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = []

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        self.rows.append([*results])


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer("horovod", num_workers=2, max_retries=1, quiet=True,
                 logdir=tmp_path_factory.mktemp("runs")) as made:
        yield made


def train(config: dict[str, Any]) -> Any:
    """The victim, if there is one, kills itself before the step FATAL of the first attempt, while
    the other waits for its gradients."""
    import horovod.torch as hvd
    import torch
    hvd.init()
    rank, where = hvd.rank(), Path(config["where"])
    torch.manual_seed(rank)
    model = torch.nn.Linear(10, 1)
    inner = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    began = at = 0
    if state := sgd.load_checkpoint():
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])
        began = at = state["at"]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(inner, root_rank=0)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    while at < STEPS:
        if at == FATAL and rank == config.get("victim") and not (where / "killed").exists():
            time.sleep(0.1)
            (where / "killed").write_text(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            optimizer.zero_grad()
            loss = (model(torch.full((4, 10), float(rank + 1))) ** 2).mean()
            loss.backward()
            optimizer.step()
        except Exception as e:
            (where / f"survivor-{rank}").write_text(type(e).__name__)
            raise
        at += 1
        sgd.report(loss=loss, at=at)
        sgd.save_checkpoint(model=model.state_dict(), optimizer=inner.state_dict(), at=at)
    return [began, hvd.size(), model.weight.tolist(), os.getpid(),
            int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])]


def test_ranks_train_one_model(trainer: Trainer, tmp_path: Path) -> None:
    seen = Rows()
    first, second = trainer.run(train, {"where": str(tmp_path)}, callbacks=[seen])
    assert first[:3] == second[:3] and first[:2] == [0, 2]
    losses = [r[1]["loss"] for r in seen.rows]
    assert len(losses) == STEPS and losses[-1] < losses[0]
    state = trainer.get_last_checkpoint()
    assert state["at"] == STEPS and state["model"]["weight"].tolist() == first[2]
    with pytest.raises(ConnectionRefusedError):  # the rendezvous is over
        socket.create_connection(("127.0.0.1", first[4]))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_is_revived(tmp_path: Path, victim: int, keep: bool) -> None:
    with Trainer("horovod", num_workers=2, max_retries=1, quiet=True,
                 keep_workers=keep) as trainer:
        results = trainer.run(train, {"where": str(tmp_path), "victim": victim})
        assert (tmp_path / f"survivor-{1 - victim}").read_text() == "HorovodInternalError"
        port = int((tmp_path / "killed").read_text())
        for began, size, weights, _, now in results:
            assert 1 <= began <= FATAL and size == 2 and weights == results[0][2]
            assert now == results[0][4] != port, "in a rendezvous of its own"
        again = trainer.run(train, {"where": str(tmp_path)})
        assert {r[3] for r in again} == {r[3] for r in results} if keep else \
            not {r[3] for r in again} & {r[3] for r in results}


def test_another_number_of_workers(trainer: Trainer, tmp_path: Path) -> None:
    for n in (1, 3):
        results = trainer.run(train, {"where": str(tmp_path)}, num_workers=n)
        assert [r[1] for r in results] == [n] * n and results[-1][2] == results[0][2]


def listening() -> tuple[str, list[str]]:
    import horovod.torch as hvd
    hvd.init()
    mine = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True).stdout.splitlines()
    hvd.barrier()
    return os.environ["HOROVOD_GLOO_IFACE"], [
        line.split()[3] for line in mine if f"pid={os.getpid()}," in line]


def test_it_stays_on_the_loopback() -> None:
    with Trainer(HorovodConfig(nics={"lo"}, timeout_s=60), num_workers=2, quiet=True) as trainer:
        found = trainer.run(listening)
    assert [interface for interface, _ in found] == ["lo", "lo"]
    for _, addresses in found:
        assert all(a.startswith("127.0.0.1:") for a in addresses), addresses


def fit(config: dict[str, Any]) -> None:
    import horovod.torch as hvd
    import torch
    from manta.air import Checkpoint
    hvd.init()
    saved = session.get_checkpoint()
    at = saved.to_dict()["at"] if saved else 0
    while at < 4:
        if at == 2 and hvd.rank() == 1 and not Path(config["mark"]).exists():
            Path(config["mark"]).write_text(str(at))
            os.kill(os.getpid(), signal.SIGKILL)
        total = hvd.allreduce(torch.ones(1), op=hvd.Sum)
        at += 1
        session.report({"total": total, "at": at}, checkpoint=Checkpoint.from_dict({"at": at}))


def test_fit_goes_on_after_a_kill(tmp_path: Path) -> None:
    result = HorovodTrainer(
        fit, train_loop_config={"mark": str(tmp_path / "mark")},
        horovod_config=HorovodConfig(timeout_s=60), scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), verbose=0,
                             failure_config=FailureConfig(1))).fit()
    assert result.error is None and (tmp_path / "mark").read_text() == "2", "it was killed"
    assert result.metrics is not None and result.checkpoint is not None
    assert (result.metrics["total"], result.metrics["at"]) == (2.0, 4)
    assert result.checkpoint.to_dict()["at"] == 4

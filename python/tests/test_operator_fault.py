# SPDX-License-Identifier: Apache-2.0
"""The protocol of document 003: a lost worker ends the others, and the pass is made again from the
state before it, with as many workers as there is room for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from operators import Line, Mortal  # noqa: E402

import manta  # noqa: E402
from manta import _manta, sgd  # noqa: E402
from manta.util.sgd import TorchTrainer  # noqa: E402


def weights(trainer: TorchTrainer) -> list[float]:
    return [p.item() for p in trainer.get_model().parameters()]


@pytest.fixture(scope="module")
def undisturbed() -> list[list[float]]:
    """The weights after each of three passes of two workers, none of which died."""
    trainer = TorchTrainer(training_operator_cls=Line, num_workers=2)
    found = []
    for _ in range(3):
        trainer.train()
        found.append(weights(trainer))
    trainer.shutdown()
    return found


@pytest.fixture()
def mortal(tmp_path: Path) -> Iterator[Any]:
    made = []

    def make(die: int, **options: Any) -> TorchTrainer:
        config = {"die": die, "flag": str(tmp_path / "died")}
        made.append(TorchTrainer(training_operator_cls=Mortal, num_workers=2, config=config,
                                 **options))
        return made[-1]
    yield make
    for trainer in made:
        trainer.shutdown()


def test_a_pass_in_which_a_worker_dies_is_made_again(mortal: Any, tmp_path: Path,
                                                     undisturbed: list[list[float]],
                                                     capfd: pytest.CaptureFixture[str]) -> None:
    """The same bits as if nothing had happened."""
    trainer = mortal(die=6)  # in the second pass, of four batches each
    seen = []
    for _ in range(3):
        before = trainer.apply_all_workers(os.getpid)
        stats = trainer.train(max_retries=1)
        seen.append(weights(trainer))
        assert stats["num_samples"] == 32 and trainer.num_workers == 2
        after = trainer.apply_all_workers(os.getpid)
        assert (set(before) & set(after) == set()) == (len(seen) == 2)  # all of them are new
    assert seen == undisturbed
    assert (tmp_path / "died").exists() and trainer._instances.failures == 1
    assert "trying again from the state before this pass" in capfd.readouterr().err


class Doomed(Line):
    """Rank 0 dies in every second pass."""

    def train_batch(self, batch: Any, batch_info: Any = None) -> dict[str, Any]:
        if self.global_step == 6 and self.world_rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, batch_info)


def test_retries_that_are_used_up(undisturbed: list[list[float]]) -> None:
    """The error is the loss, and the state is still there."""
    trainer = TorchTrainer(training_operator_cls=Doomed, num_workers=2)
    trainer.train()
    with pytest.raises(manta.WorkerLost, match="SIGKILL"):
        trainer.train(max_retries=2)
    assert trainer._instances.failures == 3
    assert weights(trainer) == undisturbed[0]
    trainer.shutdown()


def test_a_state_that_was_not_kept_is_not_made_up(mortal: Any, tmp_path: Path) -> None:
    trainer = mortal(die=1)
    first = trainer.save(tmp_path / "first")
    with pytest.raises(manta.WorkerLost, match="SIGKILL"):
        trainer.train(max_retries=0)
    assert (tmp_path / "died").exists() and trainer._instances.failures == 1
    for call in (trainer.train, trainer.validate, trainer.get_model):
        with pytest.raises(RuntimeError, match=r"not kept.*\n.*max_retries"):
            call()
    trainer.load(first)
    assert trainer.train()["epoch"] == 1


def test_the_first_rank_dies_too(tmp_path: Path, undisturbed: list[list[float]]) -> None:
    config = {"die": 2, "flag": str(tmp_path / "died"), "rank": 0}
    trainer = TorchTrainer(training_operator_cls=Mortal, num_workers=2, config=config)
    trainer.train()
    assert weights(trainer) == undisturbed[0] and trainer._instances.failures == 1
    trainer.shutdown()


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    by = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < by:
        time.sleep(0.01)


@pytest.mark.parametrize("dead", [(0,), (1,), (0, 1)])
def test_workers_that_die_between_passes_take_nothing_along(
        dead: tuple[int, ...], undisturbed: list[list[float]]) -> None:
    trainer = TorchTrainer(training_operator_cls=Line, num_workers=2)
    trainer.train()
    pids = trainer.apply_all_workers(os.getpid)
    kill(*(pids[rank] for rank in dead))
    trainer.train(num_steps=2)
    trainer.train()
    assert weights(trainer) == undisturbed[1]
    assert not set(pids[rank] for rank in dead) & set(trainer.apply_all_workers(os.getpid))
    trainer.shutdown()


def test_a_death_in_the_middle_of_an_epoch(mortal: Any, tmp_path: Path,
                                           undisturbed: list[list[float]]) -> None:
    """The batches of an epoch that were trained on are not read again."""
    trainer = mortal(die=3)
    assert [trainer.train(num_steps=n)["batch_count"] for n in (2, None)] == [2, 2]
    assert weights(trainer) == undisturbed[0]
    assert (tmp_path / "died").exists() and trainer._instances.failures == 1


def test_a_checkpoint_before_every_pass(mortal: Any, tmp_path: Path,
                                        undisturbed: list[list[float]]) -> None:
    """checkpoint="auto" leaves a file, from which another trainer continues."""
    trainer = mortal(die=5, logdir=tmp_path / "runs")
    assert trainer.auto_checkpoint_path is None
    for _ in range(2):
        trainer.train(max_retries=2, checkpoint="auto")
    assert weights(trainer) == undisturbed[1] and trainer._instances.failures == 1
    path = trainer.auto_checkpoint_path
    assert path.is_relative_to(tmp_path / "runs")
    assert os.listdir(path.parent) == [path.name]  # no half-written ones
    assert torch.load(path, weights_only=True)["epoch"] == 1
    trainer.shutdown()
    other = TorchTrainer(training_operator_cls=Line, num_workers=2)
    other.load(path)
    other.train()
    assert weights(other) == undisturbed[1]
    other.shutdown()


def test_retries_from_a_checkpoint_that_is_named(mortal: Any, tmp_path: Path,
                                                 undisturbed: list[list[float]]) -> None:
    trainer = mortal(die=6)
    first = trainer.save(tmp_path / "first")
    trainer.train()
    trainer.train(max_retries=1, checkpoint=first)  # dies, and is the first pass again
    assert weights(trainer) == undisturbed[0] and trainer._instances.failures == 1


class Saving(Line):
    """Rank 0 dies while its state is asked for, once."""

    def state_dict(self) -> Any:
        flag = Path(self.config["flag"])
        if self.global_step == 8 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return None


def test_a_death_while_the_state_is_taken(tmp_path: Path, undisturbed: list[list[float]]) -> None:
    """It is a part of the second pass, at whose end it is; and of the third, which begins with it
    because somebody has had the operators."""
    trainer = TorchTrainer(training_operator_cls=Saving, num_workers=2,
                           config={"flag": str(tmp_path / "died")})
    trainer.train()
    trainer.train()
    assert trainer._instances.failures == 1
    (tmp_path / "died").unlink()
    trainer.update_scheduler(0)
    trainer.train()
    assert trainer._instances.failures == 2 and weights(trainer) == undisturbed[2]
    trainer.shutdown()


def test_a_pass_that_keeps_nothing_leaves_nothing_older(tmp_path: Path) -> None:
    trainer = TorchTrainer(training_operator_cls=Line, num_workers=2)
    first = trainer.save(tmp_path / "first")
    trainer.train(max_retries=0, checkpoint=first)
    kill(*trainer.apply_all_workers(os.getpid))
    with pytest.raises(RuntimeError, match="not kept"):
        trainer.validate()
    trainer.shutdown()


def _train(config: dict[str, Any]) -> tuple[int, int, list[float]]:
    """An operator in a train function; rank 1 dies in the second pass of the first attempt."""
    operator = Line(config, world_rank=sgd.world_rank(), local_rank=sgd.local_rank(),
                    is_distributed=True, wrap_ddp=True, add_dist_sampler=True)
    attempt = _manta.place()[5]
    passes = 0
    while operator.optimizer.param_groups[0]["lr"] > 0.04:
        for step, batch in enumerate(operator._get_train_loader()):
            operator.train_batch(batch)
            if (attempt, passes, step, sgd.world_rank()) == (0, 1, 1, 1):
                os.kill(os.getpid(), signal.SIGKILL)
        operator.optimizer.param_groups[0]["lr"] /= 1.5  # is saved with it
        passes += 1
    return attempt, passes, [p.item() for p in operator._get_original_models()[0].parameters()]


def test_an_operator_is_saved_by_a_run_with_checkpoint_auto(tmp_path: Path) -> None:
    with sgd.Trainer("torch", num_workers=2, logdir=tmp_path, quiet=True) as trainer:
        both = trainer.run(_train, {}, checkpoint="auto")
    assert [b[:2] for b in both] == [(1, 2)] * 2  # the first of three was not made again
    assert both[0][2] == both[1][2]


# --- resources ------------------------------------------------------------------------------------


def driver(code: str, place: Path) -> str:
    """What a driver of its own prints, on a host with two CPUs: the agent reads how many there are
    when it starts."""
    head = f"""
    import os, sys, threading, time
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from operators import Line, Mortal
    from manta.sgd import WorkerGroup
    from manta.util.sgd import TorchTrainer

    def hold(cpus):
        return WorkerGroup(1, cpus_per_worker=cpus, name="holder", quiet=True)
    """
    place.joinpath("runtime").mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, cwd=place,
        env=os.environ | {"MANTA_NUM_CPUS": "2", "XDG_RUNTIME_DIR": str(place / "runtime"),
                          "MANTA_RESULTS": str(place / "results")})
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.deadline(120)
def test_fewer_workers_none_and_all_of_them_again(tmp_path: Path,
                                                  undisturbed: list[list[float]]) -> None:
    """Steps 4 to 6: when a worker has died another trainer takes a CPU, then both, and then gives
    them back."""
    said = driver("""
    from manta._operator import instances
    held, warn = [], instances._warn

    def rob(text):  # the workers have ended, and the next ones have not begun
        held.append(hold(1))
        warn(text)

    instances._warn = rob
    flag = os.path.abspath("died")
    trainer = TorchTrainer(training_operator_cls=Mortal, num_workers=2, num_cpus_per_worker=1,
                           config={"die": 5, "flag": flag})
    trainer.train()
    stats = trainer.train(max_retries=2)
    assert trainer._instances.failures == 1 and os.path.exists(flag)
    print("workers", trainer.num_workers, "samples", stats["num_samples"], "epoch", stats["epoch"])

    os.kill(trainer.apply_all_workers(os.getpid)[0], 9)  # the last one; the other CPU goes, too
    more = hold(1)
    def release():
        time.sleep(1.0)
        more.shutdown()
    thread = threading.Thread(target=release)
    thread.start()
    began = time.monotonic()
    stats = trainer.train()
    print("waited", time.monotonic() - began > 0.5, "workers", trainer.num_workers,
          "epoch", stats["epoch"])
    thread.join(30)

    held[0].shutdown()
    stats = trainer.train()
    print("workers", trainer.num_workers, "epoch", stats["epoch"])
    trainer.shutdown()
    """, tmp_path)
    assert "workers 1 samples 32 epoch 2\n" in said, said
    assert "waited True workers 1 epoch 3\n" in said, said
    assert said.endswith("workers 2 epoch 4\n"), said
    assert "continuing with 1 of 2 workers: there is no room for more" in said
    assert "waiting for room" in said

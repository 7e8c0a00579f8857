# SPDX-License-Identifier: Apache-2.0
"""Checkpoints through real runs, with real deaths."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

pytest.importorskip("torch")

from manta import _manta, _state, sgd  # noqa: E402
from manta.sgd import CheckpointStrategy, Trainer  # noqa: E402


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(backend="torch", num_workers=2, logdir=tmp_path_factory.mktemp("runs")) as t:
        yield t


def checkpoints(trainer: Trainer) -> list[Path]:
    """On disk, oldest first."""
    found = trainer.latest_checkpoint_dir
    assert found is not None
    return sorted(d for d in found.iterdir() if (d / "manifest.json").exists())


def die() -> None:
    """Not before the snapshot has been handed over, which save does before it returns."""
    os.kill(os.getpid(), 9)


def wait_for_death() -> None:
    """In the survivor: reports until one fails."""
    for _ in range(3000):
        sgd.report(waiting=1)
        time.sleep(0.01)
    raise AssertionError("nobody died")


# --- what comes back ------------------------------------------------------------------------------


def rich_state(torch: Any) -> dict[str, Any]:
    """The same on every call."""
    g = torch.Generator().manual_seed(7)
    w = torch.randn(33, 17, generator=g)
    return {"w": torch.nn.Parameter(w), "tied": w, "row": w[3], "t": w.t(),
            "bf16": torch.randn(5, generator=g).bfloat16(), "f16": torch.ones(3).half() / 3,
            "bool": torch.tensor([True, False, True]), "c": torch.randn(3, generator=g) * 1j,
            "f8": torch.randn(7, generator=g).to(torch.float8_e4m3fn), "scalar": torch.tensor(1.25),
            "empty": torch.empty(0, 4), "dims": torch.randn((1, 2) * 5, generator=g),
            "holes": torch.randn(8, 8, generator=g)[::2, ::3], "list": [torch.arange(3), (1, "x")]}


def compare(torch: Any, got: dict[str, Any]) -> None:
    want = rich_state(torch)
    for key in set(want) - {"list"}:
        a, b = got[key], want[key]
        assert (type(a), a.dtype, a.shape, a.requires_grad) == (
            type(b), b.dtype, b.shape, b.requires_grad), key
        a, b = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
        assert torch.equal(a, b), key
    assert torch.equal(got["list"][0], torch.arange(3)) and got["list"][1] == (1, "x")
    got["tied"][3, 4] = 5.0
    assert got["w"][3, 4] == 5.0 and got["row"][4] == 5.0 and got["t"][4, 3] == 5.0


def rich(config: dict[str, Any]) -> str:
    import torch
    got = sgd.load_checkpoint()
    if got is not None:
        compare(torch, got)
        compare(torch, sgd.load_checkpoint())  # what was changed was this opening's own
        return f"{got['_timestamp'] > 0} {got['f'](20)}"
    sgd.report(step=0)
    sgd.save_checkpoint(**rich_state(torch), f=lambda x: x + 1)
    if sgd.world_rank() == 0:
        compare(torch, sgd.load_checkpoint())
        die()
    wait_for_death()
    return "not reached"


def test_everything_survives_a_death(trainer: Trainer) -> None:
    assert trainer.run(rich) == ["True 21", "True 21"]
    import torch
    compare(torch, trainer.get_last_checkpoint())  # in the driver, out of memory
    for path in checkpoints(trainer):  # and from disk
        compare(torch, _state.load_dir(path, trust=True))
        with pytest.raises(PermissionError, match="trust=True"):
            _state.load_dir(path)


def again(config: dict[str, Any]) -> list[Any]:
    import torch
    seen = [sgd.load_checkpoint()]
    for step in range(5):
        sgd.report(step=step)
        sgd.save_checkpoint({"step": step, "t": torch.full((1000,), step)})
    for _ in range(2):
        got = sgd.load_checkpoint()
        seen.append(got and (got["step"], int(got["t"].sum())))
        if got:
            got["t"].zero_()
    return seen


def test_the_newest_in_the_same_attempt(trainer: Trainer) -> None:
    assert trainer.run(again) == [[None, (4, 4000), (4, 4000)]] * 2
    assert trainer.latest_checkpoint["step"] == 4


def test_an_initial_object(trainer: Trainer) -> None:
    def first(config: dict[str, Any]) -> Any:
        return sgd.load_checkpoint()
    assert trainer.run(first, checkpoint={"epoch": 3}) == [{"epoch": 3}] * 2


def test_begin_from_a_directory(trainer: Trainer) -> None:
    def save(config: dict[str, Any]) -> None:
        sgd.save_checkpoint(epoch=8)

    def load(config: dict[str, Any]) -> int:
        return int(sgd.load_checkpoint()["epoch"])
    trainer.run(save)
    assert trainer.run(load, checkpoint=checkpoints(trainer)[-1]) == [8, 8]


def test_the_best_without_a_score_is_the_newest(trainer: Trainer) -> None:
    def train() -> None:
        for step in range(3):
            sgd.save_checkpoint(step=step)
    trainer.run(train)
    assert trainer.best_checkpoint["step"] == 2
    assert trainer.run(lambda: sgd.load_checkpoint()["step"],
                       checkpoint=trainer.best_checkpoint_path)[0] == 2


@pytest.mark.parametrize("obj", [[1, {"a": 2}], "text", None, 7], ids=repr)
def test_any_object(trainer: Trainer, obj: Any) -> None:
    def save(config: dict[str, Any]) -> None:
        sgd.save_checkpoint(obj)
    trainer.run(save)
    assert trainer.get_last_checkpoint() == obj


def like_c(config: dict[str, Any]) -> Any:
    import torch
    t = torch.arange(6.0)
    rows = [("w", _manta.DTYPES.index("F32"), (2, 3), t.data_ptr()),
            ("none", _manta.DTYPES.index("I64"), (0, 2), 0)]
    _manta.save(rows, {"epoch": 3})
    if sgd.world_rank() != 0:
        return None
    got = sgd.load_checkpoint()
    return got["w"].tolist(), tuple(got["none"].shape), got["_value"]


def test_a_checkpoint_of_a_c_program(trainer: Trainer) -> None:
    got = trainer.run(like_c)[0]
    assert got == ([[0, 1, 2], [3, 4, 5]], (0, 2), {"epoch": 3})
    assert _state.load_dir(checkpoints(trainer)[-1])["_value"] == {"epoch": 3}  # no pickle in it


def test_what_cannot_be_saved_is_named(trainer: Trainer) -> None:
    def save(config: dict[str, Any]) -> None:
        import threading
        sgd.save_checkpoint(model={"hook": threading.Lock()})
    with pytest.raises(Exception, match='its entry "model.hook"'):
        trainer.run(save)
    assert trainer.run(again)[0][0] is None  # the trainer goes on


def test_wrong_calls(trainer: Trainer) -> None:
    with pytest.raises(TypeError):
        sgd.save_checkpoint({}, x=1)
    with pytest.raises(TypeError):
        sgd.save_checkpoint(1, 2)

    def both(config: dict[str, Any]) -> None:
        sgd.save_checkpoint({}, files=True, sharded=True)
    with pytest.raises(ValueError, match="exclude each other"):
        trainer.run(both)


# --- files ----------------------------------------------------------------------------------------


def is_in_a_file(place: Path, step: int) -> bool:
    """Also in one that the writer is just moving, which is nowhere for a moment."""
    import torch
    for _ in range(100):
        try:
            if step in [float(torch.load(p)["w"][0]) for p in place.glob("*/model.pt")]:
                return True
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    return False


def with_files(config: dict[str, Any]) -> Any:
    import torch
    for step in range(6):
        sgd.report(step=step)
        model = {"w": torch.full((10,), float(step))}
        sgd.save_checkpoint({"model": model, "odd/name": step}, files=True)
        if sgd.world_rank() == 0:
            assert is_in_a_file(Path(_manta.files()).parent, step)
    got = sgd.load_checkpoint()
    return got and (got["odd/name"], float(got["model"]["w"][0]))


def test_files_lie_in_their_checkpoint(trainer: Trainer) -> None:
    assert trainer.run(with_files, checkpoint_strategy=CheckpointStrategy(num_to_keep=2)) == [
        (5, 5.0)] * 2
    import torch
    kept = checkpoints(trainer)
    assert len(kept) == 2
    for path in kept:
        state = _state.load_dir(path, trust=True)
        assert float(torch.load(path / "model.pt")["w"][0]) == state["odd/name"]
        assert torch.load(path / "odd_name.pt") == state["odd/name"]
        assert torch.load(path / "_timestamp.pt") == state["_timestamp"]
    left = [p for p in kept[0].parent.iterdir() if p not in kept]
    assert len(left) <= 1 and all(not list(p.iterdir()) for p in left)  # one that no save used


# --- sharded --------------------------------------------------------------------------------------


def shards(config: dict[str, Any]) -> Any:
    import torch
    got = sgd.load_checkpoint()
    rank = sgd.world_rank()
    if isinstance(got, list):
        return [(part["rank"], int(part["w"].sum())) for part in got]
    if got is not None:
        return got["rank"], int(got["w"].sum()), got["same"].data_ptr() == got["w"].data_ptr()
    before = None
    for step in range(3):
        sgd.report(step=step)
        w = torch.full((100_000 + rank,), rank + 10 * step)
        sgd.save_checkpoint(rank=rank, w=w, same=w.view(-1), sharded=True)
        assert before is None or torch.equal(before["w"], w - 10)
        before = sgd.load_checkpoint()
        assert before["rank"] == rank and torch.equal(before["w"], w)
    before["w"].zero_()  # this opening's own
    if rank == config["victim"]:
        die()
    wait_for_death()


@pytest.mark.parametrize("victim", [0, 1])
def test_sharded_comes_back_by_rank(trainer: Trainer, victim: int) -> None:
    got = trainer.run(shards, {"victim": victim})
    assert got == [(0, 20 * 100_000, True), (1, 21 * 100_001, True)]
    parts = trainer.get_last_checkpoint()
    assert [p["rank"] for p in parts] == [0, 1]
    assert _state.load_dir(checkpoints(trainer)[-1], trust=True)[1]["rank"] == 1


DYING_DRIVER = """
import os, sys, time
from manta import sgd
from manta.sgd import Trainer

def train(config):
    for step in range(3):
        sgd.report(step=step)
        sgd.save_checkpoint(step=step, mine=bytes([sgd.world_rank()]) * 5000, sharded=True)
    if sgd.world_rank() == 0:
        os.kill(config["driver"], 9)
    time.sleep(30)

Trainer(backend=None, num_workers=2, logdir=sys.argv[1]).run(train, {"driver": os.getpid()})
"""


def test_sharded_after_the_driver_died(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", DYING_DRIVER, str(tmp_path)], timeout=50)
    assert gone.returncode == -9
    [path] = tmp_path.iterdir()

    def train(config: Any) -> Any:
        got = sgd.load_checkpoint()
        sgd.report(step=3)
        sgd.save_checkpoint(mine=got["mine"] + b"!", sharded=True)
        assert sgd.load_checkpoint()["mine"] == got["mine"] + b"!"
        return got["step"], got["mine"][0], len(got["mine"])
    with Trainer.restore(path) as t:
        assert t.run(train) == [(2, 0, 5000), (2, 1, 5000)]
        assert t.latest_run_dir == path
        assert [part["mine"][-2:] for part in t.latest_checkpoint] == [b"\0!", b"\1!"]


def test_sharded_with_another_number_of_ranks(trainer: Trainer) -> None:
    trainer.run(shards, {"victim": 1})
    path = checkpoints(trainer)[-1]
    with Trainer(backend="torch", num_workers=1, logdir=trainer.logdir) as one:
        assert one.run(shards, checkpoint=path) == [[(0, 20 * 100_000), (1, 21 * 100_001)]]


def torn(config: dict[str, Any]) -> Any:
    """Rank 1 dies where rank 0 already waits for its part."""
    got = sgd.load_checkpoint()
    if got is not None:
        return got["step"]
    sgd.report(step=0)
    sgd.save_checkpoint(step=0, sharded=True)
    sgd.report(step=1)
    if sgd.world_rank() == 1:
        time.sleep(0.2)
        die()
    sgd.save_checkpoint(step=1, sharded=True)
    raise AssertionError("saved without rank 1")


def test_half_a_sharded_checkpoint_is_none(trainer: Trainer) -> None:
    assert trainer.run(torn) == [0, 0]


def test_a_part_that_cannot_be_saved_stops_all(trainer: Trainer) -> None:
    def bad(config: dict[str, Any]) -> None:
        rows = [("w", 1, (5,), 0)] if sgd.world_rank() == 1 else []
        _manta.save(rows, {}, None, True)
    with pytest.raises(ValueError, match="rank 1 could not save its part|has no name, no data"):
        trainer.run(bad)


# --- straight into the slot -----------------------------------------------------------------------


def by_hand(config: dict[str, Any]) -> Any:
    """What a GPU does, by the processor."""
    import ctypes
    seen = []

    def fill(addresses: list[int], base: int, size: int, serial: int, live: Any) -> None:
        seen.append(serial in live and base <= addresses[0] < base + size)
        if len(seen) == 1:
            raise LookupError("not this time")
        ctypes.memset(addresses[0], 7, 1000)

    rows = [("w", _manta.DTYPES.index("U8"), (1000,), 0)]
    with pytest.raises(LookupError) if sgd.world_rank() == 0 else contextlib.nullcontext():
        _manta.save(rows, {}, fill)
    _manta.save(rows, {}, fill)  # the second of every rank: all load what it has saved
    got = sgd.load_checkpoint()
    return seen, got and int(got["w"].sum())


def test_what_is_filled_in_is_saved(trainer: Trainer) -> None:
    assert trainer.run(by_hand) == [([True, True], 7000), ([], 7000)]


def as_if_on_gpu(config: dict[str, Any]) -> Any:
    """How states are saved one after the other: at once, after a try that was in vain, or in the
    usual order. The tensors are taken for those of a GPU, whose copies are made at once."""
    import torch
    from manta._frameworks.torch.state import again, gpu
    rank, tries, ways = sgd.world_rank(), [], []
    begin, save = gpu.copied, again.save

    def taken(source: Any) -> bool:
        return isinstance(source, torch.Tensor)

    def tried(obj: Any) -> bool:
        before = len(tries)
        done = save(obj)
        ways.append("at once" if done else "in vain" if len(tries) > before else "as usual")
        return done

    def copied(*args: Any) -> Any:
        tries.append(args)
        return begin(*args)

    kept = [(m, name, getattr(m, name)) for m, name in (
        (gpu, "_register"), (gpu, "_await_copies"), (gpu, "on_gpu"), (gpu, "copied"),
        (again, "save"))]
    for m, name, _ in kept:
        setattr(m, name, {"on_gpu": taken, "copied": copied, "save": tried}.get(
            name, lambda *_: None))
    try:
        w = torch.randn(4, 6)
        states = [
            dict(model={"a": w, "b": torch.nn.Parameter(torch.ones(3))}, epoch=1),
            dict(model={"a": w + 1, "b": torch.nn.Parameter(torch.zeros(3))}, epoch=2),
            dict(model={"a": w + 2, "b": torch.zeros(3)}, epoch=[3, "x"]),
            dict(model={"a": w, "b": torch.zeros(4)}, epoch=4),  # another shape
            dict(model={"a": w, "b": torch.zeros(4)}, epoch="e" * 5000),  # the pickle is larger
            dict(model={"a": w, "b": torch.zeros(4)}, epoch=6),
            dict(model={"a": w.t().contiguous().t(), "b": torch.zeros(4)}, epoch=7),
            dict(model={"a": w, "b": w[0, :4]}, epoch=8),  # the one is in the other
            dict(model={"a": w, "b": w[1, :4]}, epoch=9),
            dict(model={"a": w, "b": torch.ones(4)}, other=w, epoch=10),  # one more, which is tied
            dict(model={"a": w, "b": torch.ones(4)}, other=w + 1, epoch=11),
            dict(model={"a": w, "b": torch.ones(4)}, other=w + 2, epoch=12)]
        for state in states:
            sgd.save_checkpoint(**state)
            got = sgd.load_checkpoint()
            if rank == 0:
                assert got["epoch"] == state["epoch"] and got.keys() >= state.keys()
                for name, t in [*state["model"].items(), ("other", state.get("other", w))]:
                    back = got["model"].get(name, got.get("other", w))
                    assert torch.equal(back, t) and type(back) is type(t), (name, state["epoch"])
    finally:
        again._plan = None
        for m, name, was in kept:
            setattr(m, name, was)
    return ways


def test_a_state_of_a_gpu_saved_again(trainer: Trainer) -> None:
    first, second = trainer.run(as_if_on_gpu)
    assert first == ["as usual", "at once", "at once", "as usual", "in vain", "at once", "as usual",
                     "in vain", "at once", "in vain", "in vain", "at once"]
    assert second == []


def on_gpu(config: dict[str, Any]) -> Any:
    import torch
    got = sgd.load_checkpoint(device="cuda")
    if got is None:
        for step in range(8):  # slots are made, filled again, and grow
            w = torch.full((1000 * 4 ** step, 3), float(step), device="cuda")
            sgd.report(step=step)
            sgd.save_checkpoint(w=w, tied=w[5], t=w.t()[:, :7], bf=w.bfloat16()[:3],
                                here=w[0].cpu())
            w.fill_(-1)  # the snapshot was taken
        if sgd.world_rank() == 0:
            die()
        wait_for_death()
    for step in range(3):  # what was loaded from is never written again
        sgd.report(step=step)
        sgd.save_checkpoint(w=torch.full((10,), float(step), device="cuda"))
    again = sgd.load_checkpoint()
    got["w"][5, 1] = 99
    return (got["w"].device.type, got["here"].device.type, float(got["w"][-1, 0]),
            float(got["tied"][1]), float(got["bf"].float().sum()), tuple(got["t"].shape),
            again and (again["w"].device.type, float(again["w"].sum())))


@pytest.mark.gpu
def test_tensors_of_a_gpu(tmp_path: Path) -> None:
    state = ("cuda", "cpu", 7.0, 99.0, 63.0, (3, 7))
    with Trainer(num_workers=2, gpus_per_worker=0.5, logdir=tmp_path) as t:
        got = t.run(on_gpu)
    assert got[0] == (*state, ("cpu", 20.0))
    assert got[1][:6] == state


# --- where it comes from --------------------------------------------------------------------------


def test_a_foreign_pickle_needs_trust(tmp_path: Path) -> None:
    def train(config: Any) -> Any:
        sgd.save_checkpoint(x=1)
        return sgd.load_checkpoint()["x"]

    with Trainer(backend=None, logdir=tmp_path / "ours") as t:
        t.run(train)
        [path] = checkpoints(t)
        assert t.run(lambda: sgd.load_checkpoint()["x"], checkpoint=path) == [1]
    foreign = shutil.copytree(path, tmp_path / "foreign")
    with Trainer(backend=None, logdir=tmp_path / "ours") as t:
        with pytest.raises(PermissionError, match="trust=True"):
            t.run(lambda: 1, checkpoint=foreign)
        assert t.run(lambda: sgd.load_checkpoint()["x"], checkpoint=foreign, trust=True) == [1]

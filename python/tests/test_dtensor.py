# SPDX-License-Identifier: Apache-2.0
"""FSDP and DTensors in checkpoints, with real deaths."""

from __future__ import annotations

import os
from typing import Any, Iterator

import pytest

pytest.importorskip("torch.distributed.tensor")

from manta import _state, sgd  # noqa: E402
from manta._frameworks.torch.state import pieces  # noqa: E402
from manta.sgd import Trainer  # noqa: E402

STEPS = 6


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(backend="torch", num_workers=2, logdir=tmp_path_factory.mktemp("runs")) as t:
        yield t


# --- in a worker ----------------------------------------------------------------------------------


def make(mesh_shape: tuple[int, ...] | None = None) -> Any:
    """Sizes that two and three ranks cannot divide evenly, and one rank has nothing of."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.BatchNorm1d(7),
                                torch.nn.Linear(7, 1))
    mesh = {}
    if mesh_shape is not None:
        mesh["mesh"] = init_device_mesh("cpu", mesh_shape, mesh_dim_names=("copies", "pieces"))
    for layer in model:
        fully_shard(layer, **mesh)
    return fully_shard(model, **mesh), torch.optim.Adam(model.parameters(), 0.01)


def whole(model: Any) -> dict[str, list[Any]]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    return {k: v.tolist() for k, v in state.items()}


def states(how: str, model: Any, optimizer: Any) -> dict[str, Any]:
    if how == "plain":
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    from torch.distributed.checkpoint import state_dict as dcp
    return {"model": dcp.get_model_state_dict(model),
            "optimizer": dcp.get_optimizer_state_dict(model, optimizer)}


def set_states(how: str, model: Any, optimizer: Any, got: dict[str, Any]) -> None:
    if how == "plain":
        model.load_state_dict(got["model"])
        optimizer.load_state_dict(got["optimizer"])
        return
    from torch.distributed.checkpoint import state_dict as dcp
    options = dcp.StateDictOptions(full_state_dict=how == "full")
    dcp.set_model_state_dict(model, got["model"], options=options)
    dcp.set_optimizer_state_dict(model, optimizer, got["optimizer"], options=options)


def fit(model: Any, optimizer: Any, step: int, rank: int) -> None:
    import torch
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step * 10 + rank))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def check_loaded(got: dict[str, Any], saved: dict[str, Any]) -> None:
    """DTensors of the same pieces, in memory of their own."""
    import torch
    from torch.distributed.tensor import DTensor
    seen = 0
    for key, t in saved["model"].items():
        other = got["model"][key]
        assert type(other) is type(t), key
        if isinstance(t, DTensor):
            seen += 1
            assert (other.device_mesh, other.placements, other.shape, other.stride()) == (
                t.device_mesh, t.placements, t.shape, t.stride())
            t, other = t.to_local(), other.to_local()
        assert torch.equal(t, other) and (t.numel() == 0 or t.data_ptr() != other.data_ptr())
    assert seen == 6


def train(config: dict[str, Any]) -> Any:
    import torch
    how, rank = config["how"], sgd.world_rank()
    got = sgd.load_checkpoint()
    early = how == "plain"  # then the mesh is made by load_checkpoint, else it is the program's
    model, optimizer = make(config.get("mesh"))
    if not early:
        got = sgd.load_checkpoint()
    first = 0
    if got is not None:
        set_states(how, model, optimizer, got)
        first = got["step"]
    for step in range(first + 1, STEPS + 1):
        fit(model, optimizer, step, rank)
        sgd.report(step=step)
        if step == 4 and first == 0 and rank == config["victim"]:
            os.kill(os.getpid(), 9)
        state = states(how, model, optimizer)
        sgd.save_checkpoint(**state, step=step, rank=rank, sharded=True)
        check_loaded(sgd.load_checkpoint(), state)
    torch.distributed.barrier()
    return first, whole(model)


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["plain", "dcp"])
def test_same_bits_with_a_death_between(trainer: Trainer, how: str) -> None:
    calm = trainer.run(train, {"how": how, "victim": -1})
    assert [first for first, _ in calm] == [0, 0] and calm[0][1]
    for victim in (0, 1):
        assert trainer.run(train, {"how": how, "victim": victim}) == [
            (3, state) for _, state in calm]


def test_a_mesh_of_two_dimensions(trainer: Trainer) -> None:
    for mesh in ((1, 2), (2, 1)):
        calm = trainer.run(train, {"how": "dcp", "victim": -1, "mesh": mesh})
        again = trainer.run(train, {"how": "plain", "victim": 1, "mesh": mesh})
        assert again == [(3, state) for _, state in calm]
        check_whole(trainer.latest_checkpoint, calm[0][1])


def check_whole(parts: list[Any], want: dict[str, Any]) -> None:
    assert [p["rank"] for p in parts] == [0, 1]
    for part in parts:
        got = {k: v.tolist() for k, v in part["model"].items()}
        assert set(got) == set(want)
        own = {"1.running_mean", "1.running_var"} if part["rank"] else set()  # no DTensors
        assert all(got[k] == want[k] for k in set(want) - own)
    assert parts[0]["model"]["0.weight"] is parts[1]["model"]["0.weight"]  # in memory once


def test_whole_in_the_driver_and_from_disk(trainer: Trainer) -> None:
    want = trainer.run(train, {"how": "dcp", "victim": -1})[0][1]
    check_whole(trainer.latest_checkpoint, want)
    assert trainer.latest_checkpoint_dir is not None
    newest = sorted(trainer.latest_checkpoint_dir.iterdir())[-1]
    check_whole(_state.load_dir(newest, trust=True), want)
    import torch
    alone = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.BatchNorm1d(7),
                                torch.nn.Linear(7, 1))
    alone.load_state_dict(trainer.latest_checkpoint[1]["model"])


def resume(config: dict[str, Any]) -> Any:
    import torch
    from torch.distributed.checkpoint import state_dict as dcp
    parts = sgd.load_checkpoint()
    model, optimizer = make()
    set_states("full", model, optimizer, parts[0])
    state = whole(model)
    moments = dcp.get_optimizer_state_dict(
        model, optimizer, options=dcp.StateDictOptions(full_state_dict=True, cpu_offload=True))
    for name, it in moments.get("state", {}).items():  # on rank 0
        assert torch.equal(it["exp_avg"], parts[0]["optimizer"]["state"][name]["exp_avg"])
    fit(model, optimizer, STEPS + 1, 0)
    return [p["rank"] for p in parts], state, len(moments.get("state", ())), whole(model)


@pytest.mark.parametrize("workers", [1, 3])
def test_another_number_of_ranks(trainer: Trainer, workers: int) -> None:
    want = trainer.run(train, {"how": "dcp", "victim": -1})[0][1]
    assert trainer.latest_checkpoint_dir is not None
    path = sorted(trainer.latest_checkpoint_dir.iterdir())[-1]
    with Trainer(backend="torch", num_workers=workers, logdir=trainer.logdir) as other:
        got = other.run(resume, checkpoint=path)
    assert [ranks for ranks, *_ in got] == [[0, 1]] * workers
    assert got[0][1] == want and got[0][2] == 6 and got[0][3]["0.weight"] != want["0.weight"]


def test_without_sharded_it_is_refused(trainer: Trainer) -> None:
    def save(config: dict[str, Any]) -> None:
        model, optimizer = make()
        fit(model, optimizer, 1, 0)
        what = {"state": model.state_dict(), "object": optimizer, "model": model}[config["what"]]
        sgd.save_checkpoint(it=what)
        assert sgd.world_rank() > 0
    for what, words in (("state", r'entry "it\.0\.weight" is a DTensor.*\n.*sharded=True'),
                        ("object", r"a tensor in it is a DTensor"),
                        ("model", r"pieces of the FSDP model.*\n.*state_dict\(\)")):
        with pytest.raises(ValueError, match=words):
            trainer.run(save, {"what": what})


def test_a_whole_state_dict_needs_no_shards(trainer: Trainer) -> None:
    def save(config: dict[str, Any]) -> Any:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        model, _ = make()
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        sgd.save_checkpoint(model=get_model_state_dict(model, options=options))
        return whole(model)
    want = trainer.run(save)[0]
    assert {k: v.tolist() for k, v in trainer.latest_checkpoint["model"].items()} == want


def test_fsdp_of_the_first_kind(trainer: Trainer) -> None:
    """Its state_dict is whole, and made by all ranks together."""
    def save(config: dict[str, Any]) -> Any:
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 3)
        model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
        if config["model"]:
            sgd.save_checkpoint(model=model)
        sgd.save_checkpoint(model=model.state_dict())
    trainer.run(save, {"model": False})
    assert trainer.latest_checkpoint["model"]["weight"].shape == (3, 3)
    with pytest.raises(ValueError, match="pieces of the FSDP model"):
        trainer.run(save, {"model": True})


# --- where a piece lies ---------------------------------------------------------------------------


def piece(placements: tuple[Any, ...], sizes: tuple[int, ...], shape: tuple[int, ...],
          local: Any) -> pieces.Piece:
    import math
    mesh = pieces.Mesh("cpu", tuple(range(math.prod(sizes))), sizes, None)
    return pieces.Piece("w", local, mesh, placements, shape, (), False, False)


@pytest.mark.parametrize("sizes, dims", [((3,), (0,)), ((3,), (1,)), ((2, 3), (0, 1)),
                                         ((2, 3), (1, 1)), ((2, 2), (None, 0)), ((4,), (0,))])
def test_pieces_become_whole(sizes: tuple[int, ...], dims: tuple[int | None, ...]) -> None:
    import math

    import torch
    from torch.distributed.tensor import Replicate, Shard
    want = torch.arange(5.0 * 7).view(5, 7)
    whole = pieces.Whole()
    got = None
    placements = tuple(Replicate() if d is None else Shard(d) for d in dims)
    for rank in range(math.prod(sizes)):
        local = want
        for i, d in enumerate(dims):
            if d is not None:
                at = rank // math.prod(sizes[i + 1:]) % sizes[i]
                cut = local.chunk(sizes[i], d)
                local = cut[at] if at < len(cut) else local.narrow(d, 0, 0)
        got = whole.of_rank(rank)(piece(placements, sizes, (5, 7), local))
        if rank == 0 and None not in dims:
            with pytest.raises(ValueError, match='"w" of the checkpoint is not whole: .* rank 1'):
                whole.check()
    whole.check()
    assert got is not None and torch.equal(got, want)


def test_what_cannot_be_put_together_is_named() -> None:
    import torch
    from torch.distributed.tensor import Partial, Shard
    with pytest.raises(ValueError, match='"w" .* placed as P'):
        pieces.Whole().of_rank(0)(piece((Partial(),), (2,), (4,), torch.ones(4)))
    with pytest.raises(ValueError, match="a sharding of its own"):
        pieces.Whole().of_rank(0)(piece((Shard(0),), (2,), (4,), torch.ones(3)))

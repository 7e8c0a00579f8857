# SPDX-License-Identifier: Apache-2.0
"""Large models: prepare_model(parallel_strategy="fsdp"), and checkpoints of them that go on with
another number of workers, after real deaths."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Iterator

import pytest

pytest.importorskip("torch.distributed.fsdp", reason="torch with FSDP is not installed")

from manta import _manta, sgd, train  # noqa: E402
from manta.air import FailureConfig, RunConfig, ScalingConfig, session  # noqa: E402
from manta.sgd import Trainer  # noqa: E402

SMALL = {"min_num_params": 0}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    with Trainer(backend="torch", num_workers=(2, 2), quiet=True, keep_workers=True,
                 logdir=tmp_path_factory.mktemp("runs")) as trainer:
        yield trainer


# --- in a worker ----------------------------------------------------------------------------------


def make(width: int = 5, norm: bool = False) -> Any:
    """A net of three blocks, in sizes that no number of ranks divides evenly."""
    import torch

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(width, 7), torch.nn.Linear(7, width)
            self.norm = torch.nn.BatchNorm1d(width) if norm else torch.nn.Identity()
            self.seen: list[Any] = []

        def forward(self, x: Any) -> Any:
            self.seen.append((x.dtype, self.up.weight.dtype))
            return self.norm(x + self.down(torch.relu(self.up(x))))

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(3, width)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
            self.last = torch.nn.Linear(width, 1)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.last(x)

    return Net()


def step(model: Any, optimizer: Any, number: int) -> float:
    """On the same 24 rows whatever the number of ranks: the mean gradient is the same."""
    import torch
    rows = torch.randn(24, 3, generator=torch.Generator().manual_seed(number))
    x = rows.chunk(sgd.world_size())[sgd.world_rank()].to(sgd.get_device())
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    sgd.backward(loss)
    optimizer.step()
    return float(loss.detach())


def whole(model: Any) -> dict[str, Any]:
    from torch.distributed.tensor import DTensor
    state = getattr(model, "module", model).state_dict()
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone()
            for k, v in state.items()}


def close(a: dict[str, Any], b: dict[str, Any]) -> bool:
    import torch
    return list(a) == list(b) and all(torch.allclose(a[k], b[k], rtol=1e-4, atol=1e-6) for k in a)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    import torch
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a)


# --- training -------------------------------------------------------------------------------------


def test_it_trains_as_ddp_does(two: Trainer) -> None:
    """From rank 0's weights, though no rank is seeded; with blocks of their own, some of them
    computed again, and an optimizer that was made before."""
    def train() -> Any:
        import copy

        import torch
        from torch.distributed.fsdp import FSDPModule
        net = make()
        if sgd.world_rank() == 0:
            sgd.save_checkpoint(net=net.state_dict())
        else:
            sgd.save_checkpoint()
        other = copy.deepcopy(net)
        ddp = sgd.prepare_model(net)
        optimizer = torch.optim.Adam(other.parameters(), 0.01)
        fsdp, optimizer = sgd.accelerate(other, optimizer=optimizer, strategy="fsdp",
                                         strategy_kwargs=SMALL, activation_checkpointing=True)
        assert fsdp is other and isinstance(fsdp, FSDPModule)
        assert same(whole(fsdp), sgd.load_checkpoint()["net"])
        units = [n for n, m in fsdp.named_modules() if isinstance(m, FSDPModule)]
        beside = torch.optim.Adam(ddp.parameters(), 0.01)
        losses = [(step(ddp, beside, i), step(fsdp, optimizer, i)) for i in range(4)]
        pieces = sum(p.to_local().numel() for p in fsdp.parameters())
        return (units, losses, close(whole(fsdp), net.state_dict()), pieces,
                [len(b.seen) for b in fsdp.blocks])

    results = two.run(train)
    for units, losses, is_close, _, seen in results:
        assert units == ["", "blocks.0", "blocks.1", "blocks.2"] and is_close and seen == [8, 8, 8]
        assert all(abs(a - b) < 1e-4 for a, b in losses)
    weights = 3 * (5 * 7 + 7 + 7 * 5 + 5) + 3 * 5 + 5 + 5 + 1
    assert sum(r[3] for r in results) == weights and results[1][3] < 0.6 * weights


def test_the_choice_of_blocks_and_options_of_torch(two: Trainer) -> None:
    def train() -> Any:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule

        def units(**options: Any) -> list[str]:
            model = sgd.prepare_model(make(), parallel_strategy="fsdp",
                                      parallel_strategy_kwargs=options)
            model(torch.ones(2, 3)).sum().backward()
            return [n for n, m in model.named_modules() if isinstance(m, FSDPModule)]

        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("copies", "pieces"))
        return [units(), units(wrap="Block", mesh=mesh, reshard_after_forward=False),
                units(wrap=torch.nn.Linear, min_num_params=40),
                units(wrap=lambda m: m is not None and type(m).__name__ == "Block")]

    three = ["", "blocks.0", "blocks.1", "blocks.2"]
    inner = [f"blocks.{i}.{part}" for i in range(3) for part in ("up", "down")]
    assert two.run(train) == [[[""], three, ["", *inner], three]] * 2


def test_mixed_precision(two: Trainer) -> None:
    def train() -> Any:
        import torch
        model, optimizer = make(norm=True), None
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer = sgd.accelerate(model, optimizer=optimizer, strategy="fsdp",
                                          strategy_kwargs=SMALL, mixed_precision="bf16")
        losses = [step(model, optimizer, 0) for _ in range(5)]
        assert model(torch.ones(2, 3)).dtype is torch.float32
        norm = model.blocks[0].norm
        return ({str(d) for seen in model.blocks[0].seen for d in seen}, losses[-1] < losses[0],
                str(optimizer.param_groups[0]["params"][0].dtype),
                str(norm.running_mean.dtype), str(norm.weight.grad.dtype))

    for seen, learns, *dtypes in two.run(train):
        assert seen == {"torch.bfloat16"} and learns and dtypes == ["torch.float32"] * 3


def test_a_model_without_memory_is_filled_in_pieces(two: Trainer) -> None:
    def train(config: dict[str, Any]) -> Any:
        import torch
        with torch.device("meta"):
            model = make()
            if config["lacking"]:
                model.scale = torch.nn.Parameter(torch.ones(1))
        model = sgd.prepare_model(model, parallel_strategy="fsdp", parallel_strategy_kwargs=SMALL)
        state = whole(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return (all(t.isfinite().all() and t.std() > 0 for k, t in state.items() if t.numel() > 1),
                step(model, optimizer, 0))

    assert all(ok and loss > 0 for ok, loss in two.run(train, {"lacking": False}))
    with pytest.raises(ValueError, match="part 'itself' .* has no reset_parameters"):
        two.run(train, {"lacking": True})


def test_what_cannot_be_is_said(two: Trainer) -> None:
    def train(config: dict[str, Any]) -> Any:
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.nn.parallel import DistributedDataParallel
        model = make()
        if config["what"] == "returned":
            return sgd.prepare_model(model, parallel_strategy="fsdp")
        model = {"ddp": lambda: DistributedDataParallel(model),
                 "first": lambda: FullyShardedDataParallel(model, device_id=torch.device("cpu")),
                 "list": lambda: model.blocks}[config["what"]]()
        return sgd.prepare_model(model, parallel_strategy="fsdp")

    for what, words in (("ddp", "in DistributedDataParallel already"), ("list", "never is\nhint"),
                        ("first", "the first FSDP"), ("returned", "only pieces of the FSDP model")):
        with pytest.raises((TypeError, ValueError), match=words):
            two.run(train, {"what": what})


def test_one_worker_and_a_model_that_is_prepared_again(tmp_path: Path) -> None:
    def train() -> Any:
        import torch
        model = sgd.prepare_model(make(), True, "fsdp", SMALL)
        assert sgd.prepare_model(model, parallel_strategy="fsdp") is model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = [step(model, optimizer, 0) for _ in range(5)]
        return losses[-1] < losses[0], type(model.first.weight).__name__

    with Trainer(backend="torch", logdir=tmp_path, quiet=True) as trainer:
        assert trainer.run(train) == [(True, "DTensor")]


# --- checkpoints ----------------------------------------------------------------------------------


def train_on(config: dict[str, Any]) -> Any:
    """Goes on from the newest checkpoint; what it loaded is what was saved."""
    import torch
    torch.manual_seed(sgd.world_rank())
    strategy = config.get("strategy", "fsdp")
    model = sgd.prepare_model(make(norm=True), parallel_strategy=strategy,
                              parallel_strategy_kwargs=SMALL if strategy == "fsdp" else None)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    rest = sgd.load_checkpoint_into(model=model, optimizer=optimizer)
    first = rest["step"] + 1 if rest else 0
    loaded = whole(model)
    moments = {k: (v.full_tensor() if hasattr(v, "full_tensor") else v).clone() for k, v in
               optimizer.state_dict()["state"].get(0, {}).items()}
    for number in range(first, config["steps"]):
        loss = step(model, optimizer, number)
        sgd.report(step=number, loss=loss)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
        sgd.save_checkpoint(**state, rank=sgd.world_rank(), sharded=strategy == "fsdp")
    return first, rest and rest["rank"], loaded, moments, whole(model), sgd.world_size()


def test_checkpoints_go_on_with_any_number_of_workers(tmp_path: Path) -> None:
    """3 → 2 → 4 → 1 → the whole model by DDP → 2. Each loads the bits that were saved, and all of
    them together train as one."""
    path, last, steps = None, None, 0
    stages = [(3, "fsdp"), (2, "fsdp"), (4, "fsdp"), (1, "fsdp"), (2, "ddp"), (2, "fsdp")]
    for workers, strategy in stages:
        steps += 2
        with Trainer(backend="torch", num_workers=(workers, workers), logdir=tmp_path,
                     quiet=True) as t:
            got = t.run(train_on, {"steps": steps, "strategy": strategy}, checkpoint=path)
            assert t.latest_checkpoint_dir is not None
            path = sorted(t.latest_checkpoint_dir.iterdir())[-1]
        for first, rank, loaded, moments, _, size in got:
            assert (first, size) == (steps - 2, workers)
            if last is not None:
                assert rank == 0 and moments["step"] == first
                floats = {k: v for k, v in loaded.items() if "running" not in k}
                assert all(floats[k].equal(last[k]) for k in floats), (workers, strategy)
        assert all(close_weights(r[4], got[0][4]) for r in got)
        last = got[0][4]


def close_weights(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """But for the statistics of each rank."""
    keys = [k for k in a if "running" not in k]
    return close({k: a[k] for k in keys}, {k: b[k] for k in keys})


def train_by_itself(config: dict[str, Any]) -> Any:
    """checkpoint="auto": what every attempt begins with, and what the checkpoint has."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    model = sgd.prepare_model(make(), parallel_strategy="fsdp", parallel_strategy_kwargs=SMALL)
    optimizer = sgd.prepare_optimizer(torch.optim.Adam(model.parameters(), 0.01))
    rows = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
    loader = sgd.prepare_data_loader(DataLoader(TensorDataset(rows), batch_size=4))
    size, began, saved = sgd.world_size(), None, None
    for epoch in range(8):
        for x, in loader:
            if began is None:
                began, saved = (whole(model), optimizer.state_dict()), sgd.load_checkpoint()
                step_number = int(began[1]["state"].get(0, {"step": 0})["step"])
                parts = saved if isinstance(saved, list) else [saved]
                weights = parts[0]["auto"]["models"][0]
                moments = parts[0]["auto"]["optimizers"][0]["state"]
                assert same(began[0], {k: getattr(v, "full_tensor", lambda: v)()
                                       for k, v in weights.items()})
                assert not moments or moments[0]["step"] == step_number
                sgd.report(size=size, parts=len(parts), step=step_number)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        sgd.report(size=size, epoch=epoch)
        if _manta.place()[5] == 1 and epoch == 2 and sgd.world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return size


class Shrink(sgd.SGDCallback):
    """3 → 2, when the first pass is over."""

    def __init__(self) -> None:
        self.began: list[tuple[int, int, bool]] = []
        self.trainer: Any = None

    def handle_result(self, results: Any, **info: Any) -> None:
        row = results[0]
        if "parts" in row:
            self.began.append((row["size"], row["parts"], row["step"] > 0))
        elif row["size"] == 3 and row["epoch"] == 0:
            self.trainer.resize(2)


def test_what_was_prepared_goes_on_by_itself(tmp_path: Path) -> None:
    """With fewer workers, and after a kill among as many."""
    shrink = Shrink()
    with Trainer(backend="torch", num_workers=(1, 3), logdir=tmp_path, quiet=True) as trainer:
        shrink.trainer = trainer
        assert trainer.run(train_by_itself, checkpoint="auto", callbacks=[shrink]) == [2, 2]
    assert shrink.began == [(3, 1, False), (2, 3, True), (2, 1, True)]


def fit(config: dict[str, Any]) -> None:
    """In a train function of generation 3."""
    import torch

    from manta.train.torch import load_checkpoint_into, prepare_model
    model = prepare_model(make(), parallel_strategy="fsdp", parallel_strategy_kwargs=SMALL)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    rest = load_checkpoint_into(model=model, optimizer=optimizer)
    first = rest["step"] + 1 if rest else 0
    for number in range(first, 6):
        loss = step(model, optimizer, number)
        session.report({"loss": loss, "first": first})
        train.save_checkpoint(model=model.state_dict(), optimizer=optimizer.state_dict(),
                              step=number, rank=session.get_world_rank(), sharded=True)
        checkpoint = session.get_checkpoint()
        assert checkpoint is not None
        assert checkpoint.to_dict()["rank"] == session.get_world_rank()
        if number == 3 and first == 0 and session.get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_torch_trainer_fits_in_pieces(tmp_path: Path) -> None:
    """Through a kill; of its result the checkpoint is whole."""
    result = train.torch.TorchTrainer(
        fit, train_loop_config={}, scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), verbose=0,
                             failure_config=FailureConfig(max_failures=2))).fit()
    assert result.error is None and result.metrics["first"] > 0
    state = result.checkpoint.to_dict()
    assert (state["step"], state["rank"]) == (5, 0)
    make().load_state_dict(state["model"])


def test_wrong_loads_say_what_to_write(two: Trainer) -> None:
    def train(config: dict[str, Any]) -> Any:
        import torch
        model = make()
        what = config["what"]
        if what == "position":
            sgd.load_checkpoint_into(model)
        elif what == "object":
            sgd.load_checkpoint_into(model={})
        assert sgd.load_checkpoint_into(model=model) is None
        state = {"model": model.state_dict(), "epoch": 3}
        sgd.save_checkpoint(state)
        if what == "entry":
            sgd.load_checkpoint_into(model=model, optimizer=torch.optim.SGD(model.parameters()))
        return sgd.load_checkpoint_into(model=model)["epoch"]

    assert two.run(train, {"what": "nothing"}) == [3, 3]
    for what, words in (("position", r"hint: load_checkpoint_into\(model=model"),
                        ("object", "a dict has no load_state_dict"),
                        ("entry", "no entry 'optimizer'; it has 'model', 'epoch'")):
        with pytest.raises((TypeError, ValueError), match=words):
            two.run(train, {"what": what})


# --- on GPUs --------------------------------------------------------------------------------------


def train_on_gpu(config: dict[str, Any]) -> Any:
    import torch
    model = make()
    model, optimizer = sgd.accelerate(
        model, optimizer=torch.optim.Adam(model.parameters(), 0.01), strategy="fsdp",
        strategy_kwargs={**SMALL, "cpu_offload": config["offload"]},
        mixed_precision=config["precision"], activation_checkpointing=True)
    rest = sgd.load_checkpoint_into(model=model, optimizer=optimizer)
    losses = [step(model, optimizer, 0) for _ in range(0 if rest else 20)]
    sgd.save_checkpoint(model=model.state_dict(), optimizer=optimizer.state_dict(), sharded=True)
    state = {k: v.to_local() for k, v in model.state_dict().items()}
    return (losses, {t.device.type for t in state.values()}, {t.dtype for t in state.values()},
            {str(d) for seen in model.blocks[0].seen for d in seen},
            {k: v.to(sgd.get_device()).full_tensor().cpu() for k, v in model.state_dict().items()})


@pytest.mark.gpu
@pytest.mark.parametrize("precision, offload", [(None, False), ("bf16", False), ("fp16", False),
                                                (None, True)])
def test_two_workers_share_a_gpu_and_one_goes_on(tmp_path: Path, precision: str | None,
                                                 offload: bool) -> None:
    import torch
    config = {"precision": precision, "offload": offload}
    with Trainer(num_workers=(2, 2), gpus_per_worker=0.5, logdir=tmp_path, quiet=True) as t:
        both = t.run(train_on_gpu, config)
        assert t.latest_checkpoint_dir is not None
        path = sorted(t.latest_checkpoint_dir.iterdir())[-1]
    computed = {None: "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}[precision]
    for losses, devices, dtypes, seen, _ in both:
        assert losses[-1] < losses[0] and devices == {"cpu" if offload else "cuda"}
        assert dtypes == {torch.float32} and seen == {computed}
    with Trainer(use_gpu=True, logdir=tmp_path, quiet=True) as t:
        [one] = t.run(train_on_gpu, config, checkpoint=path)
    assert same(one[4], both[0][4]) and same(both[1][4], both[0][4])

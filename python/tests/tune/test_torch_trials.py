# SPDX-License-Identifier: Apache-2.0
"""Trials that train with torch: a function, and whole distributed runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manta import sgd, train, tune
from manta.train.torch import TorchTrainer
from manta.tune.schedulers import PopulationBasedTraining

pytest.importorskip("torch", reason="torch is not installed")


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "metric": "loss", "mode": "min", "seed": 1,
                                          **options})


def line(config: dict[str, Any]) -> Any:
    """A few steps towards y = 2x."""
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    x = torch.linspace(-1, 1, 16).unsqueeze(1)
    for _ in range(config.get("steps", 5)):
        loss = ((model(x) - 2 * x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item(), model


def function(config: dict[str, Any]) -> None:
    import torch
    for loss, model in line(config):
        with tune.checkpoint_dir() as where:
            torch.save(model.state_dict(), Path(where, "model.pt"))
        tune.report(loss=loss)


def test_a_torch_function_is_tuned() -> None:
    import torch
    found = run(function, {"lr": tune.grid_search([0.0, 0.5])})
    assert found.best_config == {"lr": 0.5} and found.best_checkpoint is not None
    state = torch.load(Path(found.best_checkpoint.path, "model.pt"))
    assert set(state) == {"weight", "bias"}


def optimizes(config: dict[str, Any]) -> None:
    was_warm = "torch._dynamo" in sys.modules
    if config["steps"]:
        list(line({"lr": 0.1, "steps": 1}))
    for _ in range(config["reports"]):
        tune.report(loss=int(was_warm))


@pytest.mark.parametrize("steps, reports", [(True, 2), (False, 1)])
def test_what_an_optimizer_imports_is_imported_once(steps: bool, reports: int) -> None:
    found = run(optimizes, {"steps": steps, "reports": reports}, num_samples=3,
                max_concurrent_trials=1, stop={"training_iteration": 1})
    warm = [t.last_result["loss"] for t in found.trials]
    # The worker that trials are forked from may be a late one, which has it from the beginning.
    assert warm[1:] == [1, 1] if steps else warm == [warm[0]] * 3


def meet(directory: str, step: int) -> None:
    """Waits until two trials are at this step, so that neither ends before the other begins."""
    Path(directory, f"{step}-{os.getpid()}").touch()
    until = time.monotonic() + 60
    while len(list(Path(directory).glob(f"{step}-*"))) < 2:
        assert time.monotonic() < until, step
        time.sleep(0.002)


def distributed(config: dict[str, Any]) -> None:
    import torch
    import torch.distributed as dist
    torch.manual_seed(0)
    model = train.torch.prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    found = tune.get_checkpoint()
    begun = 0
    if found is not None:
        state = found.to_dict()
        begun = state["step"] + 1
        model.load_state_dict(state["model"])
    x = torch.linspace(-1, 1, 8).unsqueeze(1) + train.get_context().get_world_rank()
    for step in range(begun, config["steps"]):
        if "meet" in config and train.get_context().get_world_rank() == 0:
            meet(config["meet"], step)
        loss = ((model(x) - 2 * x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        train.report({"loss": total.item(), "step": step, "begun": begun, "lr": config["lr"]},
                     checkpoint=train.Checkpoint.from_dict(
                         {"step": step, "model": model.state_dict()}))


def trainer() -> TorchTrainer:
    return TorchTrainer(distributed, train_loop_config={"steps": 2},
                        scaling_config=train.ScalingConfig(
                            num_workers=2, resources_per_worker={"CPU": 0.5}))


def test_a_tuner_runs_torch_trainers(tmp_path: Path) -> None:
    grid = tune.Tuner(trainer(), param_space={
        "train_loop_config": {"lr": tune.grid_search([0.0, 0.1])}},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=train.RunConfig(storage_path=str(tmp_path), verbose=0)).fit()
    best = grid.get_best_result()
    assert not grid.errors and best.config == {"lr": 0.1} and best.metrics["step"] == 1
    assert best.checkpoint is not None and best.checkpoint.to_dict()["step"] == 1


def test_pbt_copies_distributed_torch_trials(tmp_path: Path) -> None:
    """The worse half takes over weights and step of the better, out of memory."""
    pbt = PopulationBasedTraining(perturbation_interval=2, quantile_fraction=0.5,
                                  hyperparam_mutations={"lr": [0.1, 0.2]},
                                  resample_probability=0)
    found = run(trainer().as_tuned(), {"lr": tune.grid_search([0.0, 0.1]), "steps": 8,
                                       "meet": str(tmp_path)}, scheduler=pbt)
    assert {t.status for t in found.trials} == {"TERMINATED"}
    copied = [t for t in found.trials if t.last_result["begun"] > 0]
    assert copied and all(t.last_result["lr"] in (0.1, 0.2) for t in copied)
    assert all(t.last_result["step"] == 7 for t in found.trials)


def by_rank(config: dict[str, Any]) -> None:
    for loss, _ in line(config):
        sgd.report(loss=loss, ranks=sgd.world_size())


def own_trainer(config: dict[str, Any]) -> None:
    """A trial that makes its own trainer, and cross validates with it."""
    with sgd.Trainer("torch", num_workers=2, resources_per_worker={"CPU": 0.5}) as inner:
        losses = [inner.run(last_of, {**config, "fold": fold})[0] for fold in range(3)]
    tune.report(loss=sum(losses) / 3, folds=len(losses))


def last_of(config: dict[str, Any]) -> float:
    return float([loss for loss, _ in line(config)][-1])


def test_trainers_are_trials_and_in_trials() -> None:
    outer = sgd.Trainer("torch", num_workers=2, resources_per_worker={"CPU": 0.5})
    found = run(outer.to_tune_trainable(by_rank), {"lr": tune.grid_search([0.0, 0.5])})
    outer.shutdown()
    assert found.best_config == {"lr": 0.5} and found.best_result["ranks"] == 2
    found = run(own_trainer, {"lr": tune.grid_search([0.0, 0.5])}, max_concurrent_trials=1,
                resources_per_trial=tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 0.5}]))
    assert found.best_config == {"lr": 0.5} and found.best_result["folds"] == 3


# --- in the words of the first versions -----------------------------------------------------------


def test_a_function_of_several_workers_is_a_trainable() -> None:
    from manta.tune.integration.torch import (DistributedTrainableCreator,
                                              distributed_checkpoint_dir, is_distributed_trainable)

    def worker(config: dict[str, Any], checkpoint_dir: str | None = None) -> None:
        import torch.distributed as dist
        assert is_distributed_trainable() and dist.get_world_size() == 2
        begun = int(Path(checkpoint_dir, "i").read_text()) + 1 if checkpoint_dir else 0
        for i in range(begun, 3):
            with distributed_checkpoint_dir(step=i) as path:
                Path(path, "i").write_text(str(i))
            tune.report(loss=config["x"] + 1 / (i + 1), begun=begun)
            if i == 1 and begun == 0:
                if dist.get_rank() == 0:
                    os._exit(1)
                dist.barrier()  # until it is known

    trainable = DistributedTrainableCreator(worker, num_workers=2, num_cpus_per_worker=0.5,
                                            backend="gloo")
    found = run(trainable, {"x": 1}, max_failures=1)
    assert (found.best_result["begun"], found.best_result["training_iteration"]) == (2, 3)
    assert not is_distributed_trainable()
    with pytest.warns(UserWarning, match="num_workers_per_host"):
        DistributedTrainableCreator(worker, num_workers_per_host=1)
    with pytest.raises(TypeError, match="num_worker"):
        DistributedTrainableCreator(worker, num_worker=1)

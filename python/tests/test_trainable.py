# SPDX-License-Identifier: Apache-2.0
"""Trainings in steps, driven by hand."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from manta.util.sgd import Trainable


class Counter(Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.n = config.get("start", 0)

    def step(self) -> dict[str, Any]:
        self.n += 1
        return {"n": self.n, "done": self.n >= 3, "timesteps_this_iter": 10}

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        path = Path(checkpoint_dir, "n.txt")
        path.write_text(str(self.n))
        return {"file": path, "dict": {"n": self.n}, "all": None}[self.config.get("kind", "file")]

    def load_checkpoint(self, checkpoint: Any) -> None:
        if isinstance(checkpoint, dict):
            self.n = checkpoint["n"]
        else:
            path = Path(checkpoint)
            self.n = int((path / "n.txt" if path.is_dir() else path).read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.n = new_config.get("start", 0)
        return "start" in new_config

    ended = 0

    def cleanup(self) -> None:
        self.ended += 1


def test_a_result_has_what_is_known_of_every_iteration() -> None:
    counter = Counter({"start": 1})
    first, second = counter.train(), counter.train()
    assert (first["n"], first["done"], first["training_iteration"]) == (2, False, 1)
    assert (second["n"], second["done"], second["training_iteration"]) == (3, True, 2)
    assert second["timesteps_total"] == 20 and second["iterations_since_restore"] == 2
    assert second["time_total_s"] == first["time_this_iter_s"] + second["time_this_iter_s"]
    assert (second["pid"], second["hostname"]) == (os.getpid(), socket.gethostname())
    assert second["config"] == counter.get_config() == {"start": 1}
    assert counter.iteration == counter.training_iteration == 2


class Logged(Counter):
    def log_result(self, result: dict[str, Any]) -> None:
        self.logged = result

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return {name: os.path.join(export_dir, name) for name in export_formats}


def test_results_and_models_go_out(tmp_path: Path) -> None:
    one = Logged({}, logdir=tmp_path)
    assert one.train() == one.logged
    assert one.export_model(["model"]) == {"model": str(tmp_path / "model")}
    assert one.export_model("onnx", "/x") == {"onnx": "/x/onnx"}


@pytest.mark.parametrize("kind", ["file", "dict", "all"])
def test_it_continues_from_a_checkpoint(kind: str, tmp_path: Path) -> None:
    counter = Counter({"kind": kind}, logdir=tmp_path / "mine")
    counter.train()
    path = counter.save()
    assert Path(path).is_relative_to(tmp_path / "mine" / "checkpoint_000001")
    counter.train()
    elsewhere = counter.save(tmp_path / "other")
    for saved, n in ((path, 1), (elsewhere, 2)):
        other = Counter({"kind": kind})
        other.restore(saved)
        assert other.iteration == n
        result = other.train()
        assert (result["n"], result["training_iteration"], result["timesteps_total"]) == (
            n + 1, n + 1, 10 * n + 10)
        assert result["iterations_since_restore"] == 1
    with pytest.raises(ValueError, match="not a checkpoint"):
        counter.restore(tmp_path)


def test_the_directory_is_made_when_it_is_needed() -> None:
    results = Path(os.environ["MANTA_RESULTS"])
    before = set(results.glob("Counter-*"))
    counter = Counter({})
    counter.train()
    assert set(results.glob("Counter-*")) == before
    assert Path(counter.save()).parent.parent == counter.logdir in results.glob("Counter-*")


def test_another_config_and_the_end() -> None:
    counter = Counter({})
    counter.train()
    assert counter.reset({"start": 7}) and counter.config == {"start": 7}
    assert counter.train()["n"] == 8 and counter.iteration == 1
    assert not counter.reset({"other": 1}) and counter.config == {"start": 7}
    counter.stop()
    counter.stop()
    assert counter.ended == 1
    for call in (counter.train, counter.save, lambda: counter.restore("x")):
        with pytest.raises(RuntimeError, match="was stopped"):
            call()


def test_what_a_subclass_must_have() -> None:
    class Wrong(Trainable):
        def step(self) -> Any:
            return 5

        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            return "/elsewhere"

    with pytest.raises(NotImplementedError, match="no step"):
        Trainable().train()
    with pytest.raises(NotImplementedError, match="no save_checkpoint"):
        Trainable().save()
    with pytest.raises(NotImplementedError, match="no load_checkpoint"):
        Trainable().load_checkpoint({})
    with pytest.raises(TypeError, match="must return a dict, not 5"):
        Wrong().train()
    with pytest.raises(ValueError, match="which is not in"):
        Wrong().save()
    assert Trainable.default_resource_request({}) is None


# --- of a trainer of operators --------------------------------------------------------------------


def test_a_trainer_of_operators_in_steps(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from operators import Line

    from manta.util.sgd import BaseTorchTrainable, TorchTrainer
    made = TorchTrainer.as_trainable(training_operator_cls=Line, num_workers=2, use_gpu=False,
                                     num_cpus_per_worker=0.5, config={"batch_size": 4, "lr": 1.0})
    assert issubclass(made, BaseTorchTrainable)
    assert made.default_resource_request({}) == [{"CPU": 1}, *[{"CPU": 0.5, "GPU": 0}] * 2]
    assert len(made.default_resource_request({"num_workers": 3})) == 4
    one = made({"lr": 0.1}, logdir=tmp_path)
    result = one.train()
    assert result["training_iteration"] == 1 and result["num_samples"] == 16  # of the validation
    assert result["train_loss"] > result["val_loss"] > 0
    assert {"mean_fwd_s", "mean_eval_fwd_s"} <= set(result["profile"])
    assert one.trainer.config == {"batch_size": 4, "lr": 0.1}
    path = one.save()
    expected = one.train()["train_loss"]
    other = made({"lr": 0.1})
    other.restore(path)
    again = other.train()
    assert again["train_loss"] == expected and again["training_iteration"] == 2
    assert torch.load(path, weights_only=True)["epoch"] == 1
    one.stop()
    other.stop()
    with pytest.raises(RuntimeError, match="was shut down"):
        one.trainer.train()


def test_a_step_of_ones_own() -> None:
    pytest.importorskip("torch")
    from operators import Line

    from manta.util.sgd import TorchTrainer

    def step(trainer: Any, info: dict[str, Any]) -> dict[str, Any]:
        return {**trainer.train(num_steps=2), "told": info}

    made = TorchTrainer.as_trainable(training_operator_cls=Line, use_local=True, use_gpu=False,
                                     override_tune_step=step)
    one = made()
    assert [one.train()[k] for k in ("batch_count", "told")] == [2, {"iteration": 1}]
    with pytest.raises(ValueError, match="two arguments"):
        TorchTrainer.as_trainable(training_operator_cls=Line,
                                  override_tune_step=lambda t: t)  # type: ignore[misc, arg-type]

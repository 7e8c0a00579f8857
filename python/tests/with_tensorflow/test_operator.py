# SPDX-License-Identifier: Apache-2.0
"""TFTrainer: fit() and evaluate() on workers, what was trained, a worker that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="tensorflow is not installed")

from manta.util.sgd.tf import TFTrainable, TFTrainer  # noqa: E402

pytestmark = pytest.mark.deadline(240)
CONFIG = {"lr": 0.1, "fit_config": {"steps_per_epoch": 4}, "evaluate_config": {"steps": 2}}


def data_creator(config: dict[str, Any]) -> tuple[Any, Any]:
    import tensorflow as tf
    if flag := config.get("flag"):
        from manta import sgd
        if sgd.world_rank() == 1 and not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
    both = tf.data.Dataset.from_tensor_slices((x, 3 * x + 1))
    return both.repeat().batch(16), both.batch(16)


def model_creator(config: dict[str, Any]) -> Any:
    import tensorflow as tf
    model = tf.keras.Sequential([tf.keras.layers.Input((1,)),
                                 tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer=tf.keras.optimizers.SGD(config["lr"], momentum=0.5), loss="mse",
                  metrics=["mae"])
    return model


@pytest.fixture(autouse=True)
def legacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """TFTrainer sets it for several workers; later tests choose for themselves."""
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "")  # so that it is undone if there was none
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")


def weights(trainer: TFTrainer) -> list[float]:
    return [float(w.ravel()[0]) for w in trainer.get_model().get_weights()]


def test_passes_of_one_worker_go_on_from_each_other(tmp_path: Path) -> None:
    """Two passes are as good as one of twice as many steps: weights and momentum are handed on."""
    trainer = TFTrainer(model_creator, data_creator, CONFIG, num_replicas=1)
    first = trainer.train()
    assert set(first) == {"train_loss", "train_mae"}
    path = trainer.save(tmp_path / "saved")
    after_one = weights(trainer)
    found = trainer.validate()
    assert set(found) == {"validation_loss", "validation_mae"}
    assert trainer.train()["train_loss"] < first["train_loss"]
    after_two = weights(trainer)
    trainer.shutdown()
    with pytest.raises(RuntimeError, match="was shut down"):
        trainer.train()
    whole = TFTrainer(model_creator, data_creator, {**CONFIG, "fit_config": {"steps_per_epoch": 8}})
    whole.train()
    assert weights(whole) == pytest.approx(after_two, abs=1e-5)
    whole.restore(path)
    assert weights(whole) == after_one
    whole.shutdown()


def test_several_workers_and_one_that_dies(tmp_path: Path) -> None:
    """The pass is made again, and ends as in a run without a loss."""
    flag = tmp_path / "died"
    ends = []
    for config in ({**CONFIG}, {**CONFIG, "flag": str(flag)}):
        trainer = TFTrainer(model_creator, data_creator, config, num_workers=2)
        losses = [trainer.train()["train_loss"] for _ in range(2)]
        assert losses[1] < losses[0] and trainer.validate()["validation_loss"] < losses[0]
        ends.append(weights(trainer))
        trainer.shutdown()
    assert flag.exists() and ends[1] == pytest.approx(ends[0], abs=1e-5)


def test_in_steps(tmp_path: Path) -> None:
    config = {"model_creator": model_creator, "data_creator": data_creator, "num_replicas": 1,
              "use_gpu": False, "trainer_config": CONFIG}
    assert len(TFTrainable.default_resource_request({**config, "num_replicas": 3})) == 4
    first = TFTrainable(config, logdir=tmp_path)
    result = first.train()
    assert result["training_iteration"] == 1 and result["train_loss"] > result["validation_loss"]
    path = first.save()
    second = TFTrainable(config)
    second.restore(path)
    assert second.train()["train_loss"] == pytest.approx(first.train()["train_loss"])
    first.stop()
    second.stop()

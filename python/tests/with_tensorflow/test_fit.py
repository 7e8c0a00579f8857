# SPDX-License-Identifier: Apache-2.0
"""TensorflowTrainer(…).fit(), Keras's callback in it, and its checkpoints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from manta.air import FailureConfig, RunConfig, ScalingConfig, session
from manta.train.tensorflow import TensorflowCheckpoint, TensorflowTrainer

pytest.importorskip("tensorflow", reason="tensorflow is not installed")
pytestmark = pytest.mark.deadline(180)


@pytest.fixture(autouse=True)
def legacy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    yield


def train(config: dict[str, Any]) -> None:
    import tensorflow as tf
    from manta.air.integrations.keras import ReportCheckpointCallback
    from manta.train.tensorflow import prepare_dataset_shard
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    saved = session.get_checkpoint()
    with strategy.scope():
        if saved is not None:
            model = TensorflowCheckpoint.from_checkpoint(saved).get_model()
        else:
            model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
            model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
    x = np.linspace(-1, 1, 32, dtype="float32").reshape(-1, 1)
    data = prepare_dataset_shard(tf.data.Dataset.from_tensor_slices((x, 2 * x)).batch(8))
    done = int(model.optimizer.iterations.numpy()) // 4

    class Die(tf.keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            mark = Path(config["mark"])
            if epoch == 2 and session.get_world_rank() == 1 and not mark.exists():
                mark.write_text(str(done))
                os.kill(os.getpid(), 9)
    model.fit(data, initial_epoch=done, epochs=4, verbose=0,
              callbacks=[ReportCheckpointCallback(), Die()])


def test_fit_goes_on_after_a_kill(tmp_path: Path) -> None:
    result = TensorflowTrainer(
        train, train_loop_config={"mark": str(tmp_path / "mark")},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path), failure_config=FailureConfig(1))).fit()
    assert result.error is None and (tmp_path / "mark").read_text() == "0", "it was killed once"
    assert result.metrics is not None and result.metrics["training_iteration"] == 4
    losses = [row["loss"] for row in result.rows]
    assert len(losses) >= 4 and losses[-1] < losses[0]
    model = TensorflowCheckpoint.from_checkpoint(result.checkpoint).get_model()
    assert int(model.optimizer.iterations.numpy()) == 16
    x = np.ones((4, 1), "float32")
    assert np.isfinite(model.evaluate(x, 2 * x, verbose=0))


def test_a_checkpoint_of_a_file_or_of_weights(tmp_path: Path) -> None:
    import tf_keras
    model = tf_keras.Sequential([tf_keras.layers.Input((2,)), tf_keras.layers.Dense(1)])
    weights = TensorflowCheckpoint.from_dict({"model": model.get_weights()})
    with pytest.raises(ValueError, match=r"hint: get_model\(model\)"):
        weights.get_model()
    other = tf_keras.models.clone_model(model)
    assert weights.get_model(other) is other
    assert np.array_equal(other.get_weights()[0], model.get_weights()[0])
    with pytest.raises(ValueError, match="ends in .h5 or .keras"):
        TensorflowCheckpoint.from_h5(tmp_path / "x.txt")
    with pytest.raises(ValueError, match="no entry 'model', but a\nhint: report"):
        TensorflowCheckpoint.from_dict({"a": 1}).get_model()


@pytest.mark.parametrize("wrong, said", [
    ({"checkpoint_on": "epoch"}, "there is no epoch\nhint: the events are train_begin, "),
    ({"checkpoint_on": "train_end"}, "checkpoint_on has train_end, which report_metrics_on has"),
])
def test_wrong_events_of_the_callback(wrong: dict[str, Any], said: str) -> None:
    from manta.train.tensorflow.keras import ReportCheckpointCallback
    with pytest.raises(ValueError, match=said):
        ReportCheckpointCallback(**wrong)


def test_the_callback_reports_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from manta._frameworks.tensorflow import keras
    seen: list[Any] = []
    monkeypatch.setattr(keras.context, "report",
                        lambda metrics, checkpoint: seen.append((metrics, checkpoint)))
    callback = keras.ReportCheckpointCallback(
        checkpoint_on=[], report_metrics_on=["epoch_end", "batch_end"], metrics=["loss"])
    callback.on_epoch_end(0, {"loss": 1.0, "mae": 2.0})
    callback.on_train_batch_end(3, logs={"loss": 0.5})
    assert seen == [({"loss": 1.0}, None), ({"loss": 0.5}, None)]
    with pytest.raises(ValueError, match="Keras has no loss\nhint: its logs are mae"):
        callback.on_epoch_end(1, {"mae": 2.0})

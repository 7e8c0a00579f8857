# SPDX-License-Identifier: Apache-2.0
"""Training with the real TensorFlow: fit() of tf_keras, a loop of one's own with Keras 3, what is
reported, saved and returned, and a rank that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

from manta import _manta, sgd
from manta.sgd import SGDCallback, Trainer

pytest.importorskip("tensorflow", reason="tensorflow is not installed")
pytestmark = pytest.mark.deadline(180)

EPOCHS, STEPS = 4, 4


class Rows(SGDCallback):
    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = []

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        self.rows.append([*results])


def trainer_with(legacy: str) -> Any:
    @pytest.fixture(scope="module")
    def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TF_USE_LEGACY_KERAS", legacy)
            with Trainer("tensorflow", num_workers=2, max_retries=1, quiet=True,
                         logdir=tmp_path_factory.mktemp("runs")) as made:
                yield made
    return trainer


keras2 = trainer_with("1")
keras3 = trainer_with("0")


def dataset(tf: Any) -> Any:
    """Of this rank: no two have the same."""
    x = np.random.RandomState(sgd.world_rank()).randn(64, 10).astype("float32")
    both = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    return sgd.prepare_dataset_shard(both.batch(16).repeat())


def make_model(tf: Any) -> Any:
    """With a layer whose state each rank has for itself."""
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((10,)), layers.Dense(8, activation="relu"),
                                layers.BatchNormalization(), layers.Dense(1)])


def weights_of(model: Any) -> list[list[float]]:
    return [w.ravel().tolist() for w in model.get_weights()]


# --- Keras's fit() --------------------------------------------------------------------------------


def fit(config: dict[str, Any]) -> Any:
    import tensorflow as tf
    from manta.train.tensorflow.keras import ReportCheckpointCallback
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = make_model(tf)
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    report = ReportCheckpointCallback(metrics={"loss": "loss", "error": "mae"})
    model.fit(dataset(tf), epochs=3, steps_per_epoch=STEPS, verbose=0, callbacks=[report])
    trained = [w.numpy().ravel().tolist() for w in model.trainable_weights]
    return model if sgd.world_rank() == 0 else None, trained, strategy.num_replicas_in_sync


def test_fit_reports_saves_and_returns_the_model(keras2: Trainer) -> None:
    seen = Rows()
    (model, first, replicas), (nothing, second, _) = keras2.run(fit, callbacks=[seen])
    assert replicas == 2 and first == second and nothing is None
    assert [len(r) for r in seen.rows] == [2, 2, 2]
    losses = [r[0]["loss"] for r in seen.rows]
    assert losses == [r[1]["loss"] for r in seen.rows], "the mean over all ranks"
    assert losses[2] < losses[0] and all(type(loss) is float for loss in losses)
    assert set(seen.rows[0][0]) >= {"loss", "error"} and "mae" not in seen.rows[0][0]

    saved = keras2.get_last_checkpoint()["model"]
    assert type(model).__module__.startswith("tf_keras.")
    assert weights_of(saved) == weights_of(model)
    assert [w.numpy().ravel().tolist() for w in model.trainable_weights] == first
    for copy in (model, saved):  # whole: it can be trained on, and its optimizer knows its moments
        assert int(copy.optimizer.iterations.numpy()) == 3 * STEPS
        assert any(v.numpy().any() for v in copy.optimizer.variables[2:])
        x = np.ones((4, 10), "float32")
        assert np.isfinite(copy.evaluate(x, x[:, :1], verbose=0)).all()


def test_entries_of_a_model_have_names(keras2: Trainer) -> None:
    assert keras2.latest_checkpoint_dir is not None
    newest = sorted(keras2.latest_checkpoint_dir.glob("0*"))[-1]
    rows = _manta.open_checkpoint(str(newest)).tensors()
    names = {name for name, *_ in rows}
    assert {"model.dense.kernel", "model.dense_1.bias",
            "model.batch_normalization.moving_mean"} <= names
    assert any(n.startswith("model.optimizer.") for n in names)


# --- a rank is killed -----------------------------------------------------------------------------


def train_and_die(config: dict[str, Any]) -> Any:
    """The victim of the first attempt kills itself in the middle of the third epoch."""
    import tensorflow as tf
    rank, where = sgd.world_rank(), Path(config["where"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        state = sgd.load_checkpoint()
        model = state["model"] if state else make_model(tf)
        if not state:
            model.compile(optimizer="adam", loss="mse")
    began = at = state["epoch"] if state else 0

    class Die(tf.keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if rank == config["victim"] and at == 2 and batch == 1 and began == 0:
                (where / "killed").write_text(f"{time.time()} {os.environ['TF_CONFIG']}")
                os.kill(os.getpid(), signal.SIGKILL)

    while at < EPOCHS:
        try:
            seen = model.fit(dataset(tf), epochs=1, steps_per_epoch=STEPS, verbose=0,
                             callbacks=[Die()])
        except Exception as e:
            (where / f"survivor-{rank}").write_text(f"{time.time()} {type(e).__name__}")
            raise
        at += 1
        sgd.report(loss=seen.history["loss"][-1], epoch=at)
        sgd.save_checkpoint(model=model, epoch=at)
    return [began, int(model.optimizer.iterations.numpy()), os.environ["TF_CONFIG"],
            [w.numpy().ravel().tolist() for w in model.trainable_weights]]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_is_revived(keras2: Trainer, tmp_path: Path, victim: int) -> None:
    seen = Rows()
    results = keras2.run(train_and_die, {"where": str(tmp_path), "victim": victim},
                         callbacks=[seen])
    killed, before = (tmp_path / "killed").read_text().split(" ", 1)
    noticed, kind = (tmp_path / f"survivor-{1 - victim}").read_text().split()
    assert kind in ("UnavailableError", "AbortedError", "InternalError", "CancelledError")
    assert float(noticed) - float(killed) < 10
    for began, iterations, config, weights in results:
        assert 1 <= began <= 2, "it went on from a checkpoint"
        assert iterations == EPOCHS * STEPS, "and so did the optimizer"
        assert not set(json.loads(config)["cluster"]["worker"]) & set(
            json.loads(before)["cluster"]["worker"]), "in a new cluster"
        assert weights == results[0][3]
    assert [r[0]["epoch"] for r in seen.rows][-EPOCHS + 2:] == [3, 4]


# --- the cluster ----------------------------------------------------------------------------------


def listening(config: dict[str, Any]) -> tuple[list[str], int, Any, float]:
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    port = int(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][sgd.world_rank()]
               .rpartition(":")[2])
    sockets = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True)
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)
    return sockets.stdout.split()[3:4], port, (threads, float(total)), float(tf.random.uniform(()))


def test_its_ports_are_on_the_loopback_and_go_with_the_run(keras2: Trainer) -> None:
    (one, a, first, drawn), (two, b, second, other) = keras2.run(listening)
    assert (one, two) == ([f"*%lo:{a}"], [f"*%lo:{b}"]) or (one, two) == (
        [f"0.0.0.0%lo:{a}"], [f"0.0.0.0%lo:{b}"]), "bound to the loopback interface"
    assert first == second == (1, 2.0) and drawn != other
    keras2.shutdown()
    left = subprocess.run(["ss", "-Hltn", f"( sport = :{a} or sport = :{b} )"],
                          capture_output=True, text=True)
    assert left.stdout == ""


def test_another_number_of_workers_is_another_cluster(keras2: Trainer) -> None:
    assert [r[2][1] for r in keras2.run(listening, num_workers=1)] == [1.0]
    assert [r[2][1] for r in keras2.run(listening, num_workers=3)] == [3.0] * 3


def test_a_class_keeps_its_strategy(keras2: Trainer) -> None:
    class Keeper:
        def make(self) -> int:
            import tensorflow as tf
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy()
            return int(self.strategy.num_replicas_in_sync)

        def reduce(self) -> float:
            import tensorflow as tf
            values = self.strategy.run(lambda: tf.constant(1.0))
            return float(self.strategy.reduce("SUM", values, axis=None))
    keras2.start(Keeper)
    assert keras2.execute(lambda o: o.make()) == [2, 2]
    assert keras2.execute(lambda o: o.reduce()) == [2.0, 2.0]
    keras2.shutdown()


def test_rows_hold_numbers_of_tensors(keras2: Trainer) -> None:
    def report() -> None:
        import tensorflow as tf
        sgd.report(a=tf.constant(1.5), b=tf.Variable(2), c=np.float32(3))
    seen = Rows()
    keras2.run(report, callbacks=[seen])
    assert {k: seen.rows[0][1][k] for k in "abc"} == {"a": 1.5, "b": 2, "c": 3.0}


# --- Keras 3 --------------------------------------------------------------------------------------


def own_loop(config: dict[str, Any]) -> Any:
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        state = sgd.load_checkpoint()
        model = state["model"] if state else make_model(tf)
        if not state:
            model.compile(optimizer=tf.keras.optimizers.SGD(0.05, momentum=0.9), loss="mse")
        model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(batch: Any) -> Any:
        def one(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2) / 2
            model.optimizer.apply(tape.gradient(loss, model.trainable_variables))
            return loss
        return strategy.reduce("SUM", strategy.run(one, args=batch), axis=None)

    batches = iter(strategy.experimental_distribute_dataset(dataset(tf)))
    for i in range(8):
        sgd.report(loss=step(next(batches)))
    sgd.save_checkpoint(model=model)
    trained = [np.asarray(w.value).ravel().tolist() for w in model.trainable_weights]
    return model if sgd.world_rank() == 0 else None, trained


def test_a_loop_of_ones_own(keras3: Trainer) -> None:
    seen = Rows()
    (model, first), (_, second) = keras3.run(own_loop, callbacks=[seen])
    losses = [r[0]["loss"] for r in seen.rows]
    assert first == second and len(losses) == 8 and losses[-1] < losses[0]
    assert type(model).__module__.startswith("keras.")
    saved = keras3.get_last_checkpoint()
    assert weights_of(saved["model"]) == weights_of(model)
    assert keras3.latest_checkpoint_dir is not None
    newest = sorted(keras3.latest_checkpoint_dir.glob("0*"))[-1]
    (more, _), _ = keras3.run(own_loop, checkpoint=newest)
    assert int(more.optimizer.iterations.numpy()) == 16, "it went on from there"


def test_what_fit_of_keras_3_cannot_do_is_explained(keras3: Trainer) -> None:
    with pytest.raises(ValueError) as caught:
        keras3.run(fit)
    assert "pip install tf_keras, and set TF_USE_LEGACY_KERAS=1" in "".join(caught.value.__notes__)


def test_an_operation_before_the_strategy_is_explained(keras3: Trainer) -> None:
    def late() -> None:
        import tensorflow as tf
        tf.constant(1)
        tf.distribute.MultiWorkerMirroredStrategy()
    with pytest.raises(RuntimeError) as caught:
        keras3.run(late)
    assert "first in the train function" in "".join(caught.value.__notes__)

# SPDX-License-Identifier: Apache-2.0
"""to_tf: a data set as a tf.data.Dataset, which Keras trains from."""

from __future__ import annotations

from typing import Any

import pytest

import manta.data as data

tf: Any = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
pytestmark = pytest.mark.deadline(180)

ROWS = [{"a": float(i), "n": i, "s": f"w{i}", "y": 2.0 * i} for i in range(10)]


def test_one_column_each() -> None:
    made = data.from_items(ROWS).to_tf("a", "y", batch_size=4)
    assert isinstance(made, tf.data.Dataset)
    batches = [(x.numpy().tolist(), y.numpy().tolist()) for x, y in made]
    assert [len(x) for x, _ in batches] == [4, 4, 2]
    assert all(b == 2 * a for x, y in batches for a, b in zip(x, y))
    assert sum(len(x) for x, _ in made) == 10  # the next epoch


def test_several_columns_and_their_types() -> None:
    tensors = data.from_items(ROWS).map_batches(
        lambda b: {"t": b["a"].astype("f4").repeat(6).reshape(-1, 2, 3), "n": b["n"], "s": b["s"],
                   "y": b["y"]})
    made = tensors.to_tf(["t", "n", "s"], ["y"], batch_size=5, drop_last=True)
    x, y = next(iter(made))
    assert {k: (v.dtype.name, tuple(v.shape)) for k, v in x.items()} == {
        "t": ("float32", (5, 2, 3)), "n": ("int64", (5,)), "s": ("string", (5,))}
    assert y["y"].numpy().tolist() == [0, 2, 4, 6, 8]


def test_keras_trains_from_it() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile("sgd", "mse")
    made = data.from_items([{"x": i / 10, "y": i / 5} for i in range(20)]).to_tf("x", "y",
                                                                                 batch_size=5)
    history = model.fit(made.repeat(3), epochs=1, verbose=0)
    assert history.history["loss"][0] >= 0

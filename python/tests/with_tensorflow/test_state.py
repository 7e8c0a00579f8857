# SPDX-License-Identifier: Apache-2.0
"""Tensors, variables and Keras models in checkpoints: what is copied, and what comes back."""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import pytest

from manta import _manta, _state
from manta._frameworks.tensorflow import models

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")

BYTES = {"BOOL": 1, "U8": 1, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}


class Kept:
    """What a checkpoint would be: its bytes are copies."""

    def __init__(self, obj: Any):
        rows, self._value, _ = _state.pack(obj)
        self.rows = [(name, dtype, shape, bytearray(ctypes.string_at(
            address, BYTES[_manta.DTYPES[dtype]] * int(np.prod(shape, dtype=np.int64)))))
            for name, dtype, shape, address in rows]

    def tensors(self) -> list[Any]:
        return self.rows

    def value(self) -> Any:
        return self._value


def again(obj: Any) -> Any:
    return _state.restore(Kept(obj))  # type: ignore[arg-type]


def test_tensors_are_entries_and_come_back_as_arrays() -> None:
    state = {"t": tf.range(10, dtype=tf.float32), "v": [tf.Variable([[1, 2]], dtype=tf.int64)],
             "n": np.ones(3), "h": tf.cast([1.5, -2], tf.bfloat16), "k": keras.Variable([1.0, 2.0]),
             "e": tf.zeros((0, 3)), "s": tf.constant("text"), "b": tf.constant(True)}
    names = {row[0]: _manta.DTYPES[row[1]] for row in Kept(state).rows}
    assert {"t": "F32", "v.0": "I64", "n": "F64", "h": "BF16", "k": "F32", "b": "BOOL"}.items() <= \
        names.items()
    found = again(state)
    for name in ("t", "n", "h", "k", "e", "b"):
        assert type(found[name]) is np.ndarray
        assert found[name].tolist() == np.asarray(state[name]).tolist(), name
        assert found[name].shape == tuple(state[name].shape)
    assert found["v"][0].tolist() == [[1, 2]] and found["s"].numpy() == b"text"
    found["t"][0] = 7  # its own memory


def test_no_memory_is_copied_but_into_the_checkpoint() -> None:
    tensor, variable = tf.ones((1000, 1000)), tf.Variable(tf.ones((500, 500)))
    rows, _, keep = _state.pack({"t": tensor, "v": variable})
    at = {row[0]: row[3] for row in rows}
    assert at["t"] == np.asarray(tensor).__array_interface__["data"][0]
    assert at["v"] == np.asarray(variable.read_value()).__array_interface__["data"][0]
    del keep


@pytest.mark.parametrize("package", [keras, tf_keras])
def test_a_model_comes_back_whole(package: Any) -> None:
    layers = package.layers
    model = package.Sequential([layers.Input((4,)), layers.Dense(3, activation="relu"),
                                layers.BatchNormalization(), layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    x = np.random.rand(16, 4).astype("float32")
    model.fit(x, x[:, :1], epochs=2, verbose=0)
    found = again({"model": model, "same": [model]})
    copy = found["model"]
    assert found["same"][0] is copy and type(copy) is type(model)
    assert np.array_equal(copy.predict(x, verbose=0), model.predict(x, verbose=0))
    for a, b in zip(copy.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(a, b)
    theirs, ours = models._optimizer_variables(model), models._optimizer_variables(copy)
    assert len(theirs) == len(ours) > 4
    for a, b in zip(theirs, ours):
        assert np.array_equal(np.asarray(a), np.asarray(b))
    copy.fit(x, x[:, :1], epochs=1, verbose=0)


def test_a_model_that_was_not_compiled_or_built() -> None:
    for model in (keras.Sequential([keras.layers.Dense(2)]),
                  keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(2)])):
        copy = again({"m": model})["m"]
        assert len(copy.weights) == len(model.weights)
        assert getattr(copy, "optimizer", None) is None


class Twice(keras.layers.Layer):  # type: ignore[misc, name-defined]
    def call(self, x: Any) -> Any:
        return 2 * x


def test_classes_are_found_by_their_names() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), Twice()])
    copy = again([model])[0]
    assert type(copy.layers[0]) is Twice


def test_no_code_is_saved_nor_loaded() -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Lambda(lambda x: x + 1)])
    with pytest.raises(Exception, match="a lambda, which is code and not saved with it"):
        _state.pack({"model": model})
    text = json.dumps(keras.saving.serialize_keras_object(model))
    with pytest.raises((ValueError, TypeError), match="(?i)lambda"):
        models.build("keras", text, [], [])


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)
    monkeypatch.setattr(models, "_saving", missing)
    with pytest.raises(ModuleNotFoundError, match="hint: pip install tf_keras"):
        models.build("tf_keras", "{}", [], [])


def test_what_can_be_read_without_trust() -> None:
    arrays = Kept({"t": tf.ones(3), "h": tf.cast([1.5], tf.bfloat16)})
    found = _state.restore(arrays, False, data_only=True)  # type: ignore[arg-type]
    assert found["t"].tolist() == [1, 1, 1] and float(found["h"][0]) == 1.5
    model = Kept({"m": keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])})
    with pytest.raises(PermissionError, match="keras_model"):
        _state.restore(model, False, data_only=True)  # type: ignore[arg-type]


def test_who_looks_at_something_else_makes_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept({"m": keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)]), "n": 3})
    monkeypatch.setattr(models, "build", lambda *parts: pytest.fail("it was made"))
    found = _state.restore(kept, models=False)  # type: ignore[arg-type]
    assert found == {"m": None, "n": 3}

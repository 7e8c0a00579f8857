# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that holds a Keras model. TensorFlow is imported when the model is asked for."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Self

from manta._front.fit.checkpoint import PREPROCESSOR, Checkpoint
from manta._names import public

MODEL, FILE, BYTES = "model", "model_file", "model_bytes"
_ENDS = (".h5", ".keras")


@public
class TensorflowCheckpoint(Checkpoint):
    """TensorflowCheckpoint.from_model(model); get_model() gives the model back, inside of the scope
    of a strategy as one of its own. TensorflowCheckpoint.from_checkpoint(result.checkpoint) reads
    one of a run."""

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> Self:
        """The whole model: config, weights, and the optimizer if it is compiled."""
        return cls.from_dict({PREPROCESSOR: preprocessor, MODEL: model})

    @classmethod
    def from_h5(cls, file_path: str | os.PathLike[str], *, preprocessor: Any = None) -> Self:
        """The file that model.save() has written, .h5 or .keras."""
        path = Path(file_path).expanduser()
        if path.suffix not in _ENDS:
            raise ValueError(f"{path} is not a file of Keras: its name ends in "
                             f"{' or '.join(_ENDS)}")
        return cls.from_dict({PREPROCESSOR: preprocessor, FILE: path.name,
                              BYTES: path.read_bytes()})

    def get_model(self, model: Any = None) -> Any:
        """The model. `model`, or a function that makes one, gets the weights instead, if they are
        what was saved (model.get_weights())."""
        data = self.to_dict()
        if FILE in data:
            return _of_file(data[FILE], data[BYTES])
        if MODEL not in data:
            raise ValueError(f"the checkpoint has no entry {MODEL!r}, but "
                             f"{', '.join(map(str, data))}\nhint: report({{…}}, "
                             f"checkpoint=TensorflowCheckpoint.from_model(model))")
        saved = data[MODEL]
        if not isinstance(saved, (list, tuple)):
            return saved
        if model is None:
            raise ValueError("the checkpoint holds weights\nhint: get_model(model), a model to set "
                             "them in")
        made = model if hasattr(model, "set_weights") and not isinstance(model, type) else model()
        made.set_weights(list(saved))
        return made


def _of_file(name: str, data: bytes) -> Any:
    import tensorflow as tf
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, Path(name).name)
        path.write_bytes(data)
        return tf.keras.models.load_model(path)

# SPDX-License-Identifier: Apache-2.0
"""TensorFlow. Importing this package does not import it; of its modules `state`, `dataset` and
`keras` do.

`cluster` is TF_CONFIG in a worker. `state` is tensors in checkpoints, `models` Keras models there
and on their way to the driver. A train function calls `dataset` and `keras`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from manta._frameworks.base import BackendConfig, Framework
from manta._frameworks.tensorflow.config import TensorflowConfig

if TYPE_CHECKING:
    from manta._frameworks.tensors import Tensors

_FILES = (".keras", ".h5")
_LEGACY = "TF_USE_LEGACY_KERAS"
_AT_STARTUP = "must be configured at program startup"
_PER_REPLICA = "values.PerReplica'>) to a Tensor"


class Tensorflow(Framework):
    """A cluster of all ranks around every call of a train function, each in a fresh process: one
    that TensorFlow has computed in cannot join another cluster."""

    name = "tensorflow"
    uses_onednn = True
    joins_again = False
    functions = {"prepare_dataset_shard": "dataset"}

    # --- in the driver ---

    def config(self) -> TensorflowConfig:
        return TensorflowConfig()

    def environment(self) -> dict[str, str]:
        """Which Keras `tf.keras` is, what Keras computes with, and how much TensorFlow tells of
        what it does are decided in the import."""
        return {_LEGACY: "0", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "1"}

    def hint(self, name: str) -> str | None:
        return "'tensorflow'" if name in ("tf", "keras", "tf.keras", "tf_keras") else None

    def hint_for_file(self, path: str) -> str | None:
        return (f"tf.keras.models.load_model({path!r}).get_weights()"
                if os.path.splitext(path)[1] in _FILES else None)

    # --- where workers are forked ---

    def load(self) -> None:
        """Imports alone: the first operation starts threads, which a fork does not have."""
        import numpy.random  # noqa: F401
        import tensorflow
        tensorflow.keras.layers  # the rest of Keras, which is imported when it is asked for
        import manta._frameworks.tensorflow.cluster  # noqa: F401
        import manta._frameworks.tensorflow.state  # noqa: F401

    # --- in a worker ---

    def set_threads(self, n: int) -> None:
        """Operations that wait for other ranks hold one of the threads between operations: there
        are two at least."""
        import tensorflow
        threading = tensorflow.config.threading
        try:
            threading.set_intra_op_parallelism_threads(n)
            threading.set_inter_op_parallelism_threads(max(n, 2))
        except RuntimeError:  # it computes already, in a process that was kept
            pass

    def enter(self, backend_config: BackendConfig) -> None:
        from manta._frameworks.tensorflow import cluster
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # workers may share a GPU
        cluster.join()

    def leave(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        if error is not None and (hint := _hint_of(error)):
            error.add_note(hint)

    def resume(self, backend_config: BackendConfig) -> None:
        self.enter(backend_config)

    def rest(self, backend_config: BackendConfig, error: BaseException | None) -> None:
        self.leave(backend_config, error)

    def peer_kinds(self) -> tuple[type[Exception], ...]:
        errors = getattr(sys.modules.get("tensorflow"), "errors", None)
        return (RuntimeError, *filter(None, [getattr(errors, "OpError", None)]))

    def is_peer_error(self, error: Exception) -> bool:
        """Any failure of an operation may be: the words are those of whatever broke first."""
        return type(error).__module__.startswith("tensorflow") or super().is_peer_error(error)

    def without_group(self, o: Any) -> Any:
        """A Keras model is config and weights, a variable of a strategy its value."""
        from manta._frameworks.tensorflow import models
        return models.without_strategy(o)

    def tensors(self) -> Tensors:
        from manta._frameworks.tensorflow import state
        return state.TENSORS


def _hint_of(error: BaseException) -> str | None:
    """What to write instead, where TensorFlow's own words do not say it."""
    text = str(error)
    if _AT_STARTUP in text:
        return ("hint: make the MultiWorkerMirroredStrategy first in the train function, before "
                "any tensor, dataset or model; also before load_checkpoint(), if the checkpoint "
                "holds a Keras model")
    if _PER_REPLICA in text:
        return (f"hint: fit() of Keras 3 cannot use a MultiWorkerMirroredStrategy: pip install "
                f"tf_keras, and set {_LEGACY}=1 before the Trainer is made; or write the loop with "
                f"strategy.run()")
    return None

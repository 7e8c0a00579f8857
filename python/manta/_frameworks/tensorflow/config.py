# SPDX-License-Identifier: Apache-2.0
"""What the user says about TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from manta._frameworks.base import Backend, BackendConfig
from manta._names import arguments, public


@public
@dataclass
class TensorflowConfig(BackendConfig):
    """Every worker finds TF_CONFIG, and tf.distribute.MultiWorkerMirroredStrategy() in a train
    function is a strategy over all ranks. There is nothing to choose."""

    framework = "tensorflow"

    @property
    def backend_cls(self) -> type[Backend]:
        from manta._frameworks.tensorflow import Tensorflow
        return Tensorflow


TensorflowConfig.__init__ = arguments(TensorflowConfig.__init__)  # type: ignore[method-assign]

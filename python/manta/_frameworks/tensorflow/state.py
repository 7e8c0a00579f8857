# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's tensors and variables and Keras models in checkpoints.

Tensors and variables are saved as the numpy arrays that lie over their memory, and come back as
numpy arrays: to make tensors of them is an operation, after which no strategy can be made.
"""

from __future__ import annotations

from typing import Any

import numpy
import tensorflow as tf

from manta import _manta, _pickled
from manta._frameworks.tensorflow import models
from manta._frameworks.tensors import Packer, Tensors
from manta._state.entry import Packing


class TensorflowPacker(Packer):
    def __init__(self, found: Packing):
        self.found = found
        self.models = models.kinds()
        self.kinds = (tf.Tensor, tf.Variable, *models.variable_kinds(), *self.models)

    def reduce(self, o: Any) -> Any:
        return self._reduce_model(o) if isinstance(o, self.models) else self._reduce_tensor(o)

    def _reduce_model(self, model: Any) -> Any:
        if path := self.found.path_of(model):
            for name, variable in models.named(model):
                self.found.paths.setdefault(id(variable), ((*path, name), variable))
        return _pickled.keras_model, models.parts_of(model)

    def _reduce_tensor(self, o: Any) -> Any:
        array = host_array(o)
        if array is None:
            return NotImplemented
        path = self.found.path_of(o)
        if path and array.nbytes:
            self.found.arrays.setdefault(_manta.address(array), (path, array))
        if array.dtype.isbuiltin == 1:
            return _pickled.itself, (_writable(array),)
        # What is of no type of numpy's own (bfloat16) would be copied into the pickle.
        return _pickled.array_as, (_writable(array.view(f"u{array.itemsize}")), array.dtype.name)


def host_array(o: Any) -> Any:
    """Over the memory of a tensor, or of what a variable holds now; of what a GPU has, a copy.
    None: it is of a kind without memory of its own (strings, resources, symbols)."""
    is_keras = isinstance(o, models.variable_kinds())
    value = o.value if is_keras else o
    if isinstance(value, models.distributed_kinds()):
        value = models.local_part(value)
    if isinstance(value, tf.Variable):
        value = value.read_value()
    if not hasattr(value, "_numpy") or not value.dtype.is_numpy_compatible or (
            value.dtype in (tf.string, tf.resource, tf.variant)):
        return None
    array = numpy.asarray(value)
    return array if array.flags.c_contiguous else array.copy()


def _writable(array: Any) -> Any:
    """The same memory, which nobody writes to: what is restored of it can be changed."""
    if not array.nbytes:
        return numpy.zeros(array.shape, array.dtype)
    view = _manta.view(array.__array_interface__["data"][0], array.nbytes, array)
    return numpy.frombuffer(view, array.dtype).reshape(array.shape)


class TensorflowTensors(Tensors):
    def packer(self, found: Packing) -> TensorflowPacker:
        return TensorflowPacker(found)


TENSORS = TensorflowTensors()

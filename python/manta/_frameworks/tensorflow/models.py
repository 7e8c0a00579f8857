# SPDX-License-Identifier: Apache-2.0
"""Keras models as config and weights, and back.

(1) No code travels: the classes and functions of a model are named by their modules, and found
    there again. What cannot be found so, or is a lambda, is refused when it is saved, not when it
    is loaded.
(2) The state of the optimizer is a part of a compiled model.
(3) Keras 3 and tf_keras each make their own models: the package is a part of what is saved.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, Iterator

from manta import _pickled

_PACKAGES = ("keras", "tf_keras")
_CODE = '"class_name": "__lambda__"'

Parts = tuple[str, str, list[Any], list[Any]]  # package, config, weights, of the optimizer


def kinds() -> tuple[type, ...]:
    """Of models. What nobody has imported, nobody has models of."""
    return _classes("Model")


def variable_kinds() -> tuple[type, ...]:
    """Of Keras 3's variables, which are none of TensorFlow's; each has one of those for value."""
    return _classes("Variable")


def _classes(name: str) -> tuple[type, ...]:
    found = (getattr(sys.modules.get(package), name, None) for package in _PACKAGES)
    return tuple(cls for cls in found if isinstance(cls, type))


# --- from a model ---------------------------------------------------------------------------------


def parts_of(model: Any) -> Parts:
    package = _package_of(model)
    config = _saving(package).serialize_keras_object(model)
    text = json.dumps(config)
    if _CODE in text:
        raise ValueError(f"the Keras model {model.name!r} holds a lambda, which is code and not "
                         f"saved with it\nhint: a named function or a layer of a class")
    _own_objects(config)
    return package, text, list(model.weights), _optimizer_variables(model)


def named(model: Any) -> Iterator[tuple[str, Any]]:
    """Its variables, each with the name that its entry gets in a checkpoint."""
    for v in model.weights:
        yield _name_of(v), v
    for v in _optimizer_variables(model):
        yield f"optimizer.{_name_of(v)}", v


def _name_of(variable: Any) -> str:
    """Any attribute that a strategy's variable does not have is looked for in its value, which is
    to read it."""
    is_keras = isinstance(variable, variable_kinds())
    return str(variable.path if is_keras else variable.name).removesuffix(":0").replace("/", ".")


def _optimizer_variables(model: Any) -> list[Any]:
    """A method in older versions."""
    found = getattr(getattr(model, "optimizer", None), "variables", None) or ()
    return list(found() if callable(found) and not isinstance(found, (list, tuple)) else found)


def _package_of(model: Any) -> str:
    return next(p for p in _PACKAGES
                if isinstance(model, getattr(sys.modules.get(p), "Model", ())))


def _saving(package: str) -> Any:
    return importlib.import_module(f"{package}.saving")


# --- the user's classes and functions -------------------------------------------------------------


def _own_objects(config: Any) -> dict[str, Any]:
    """Those that a config names, by the names that Keras looks for them with."""
    found = {}
    for module, name, registered in _named_objects(config):
        if not hasattr(_pickled.module(module), name):
            raise ValueError(f"the Keras model holds a {name} of {module}, which has no such name "
                             f"to find it by\nhint: define it at the top level of a module")
        found[name] = found[registered] = getattr(_pickled.module(module), name)
    return found


def _named_objects(config: Any) -> Iterator[tuple[str, str, str]]:
    """(module, name, name in Keras's registry) of what is not Keras's own."""
    if isinstance(config, dict):
        module, name = config.get("module"), config.get("class_name")
        if name == "function":
            name = config.get("config")
        if isinstance(module, str) and isinstance(name, str) and (
                module.partition(".")[0] not in (*_PACKAGES, "builtins")):
            yield module, name, str(config.get("registered_name") or name)
    inside = config.values() if isinstance(config, dict) else config
    for item in inside if isinstance(config, (dict, list, tuple)) else ():
        yield from _named_objects(item)


# --- to a model -----------------------------------------------------------------------------------


def build(package: str, text: str, weights: list[Any], optimizer: list[Any]) -> Any:
    try:
        saving = _saving(package)
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(f"a model of {package}, which is not installed for "
                                  f"{sys.executable}\nhint: pip install {package}",
                                  name=e.name) from None
    config = json.loads(text)
    model = saving.deserialize_keras_object(config, custom_objects=_own_objects(config),
                                            safe_mode=True)
    if weights:  # else it was not built
        model.set_weights(weights)
    if optimizer and getattr(model, "optimizer", None) is not None:
        model.optimizer.build(model.trainable_variables)
        for variable, value in zip(_optimizer_variables(model), optimizer):
            variable.assign(value)
    return model


def distributed_kinds() -> tuple[type, ...]:
    """Of variables that a strategy has made."""
    values = sys.modules.get("tensorflow.python.distribute.values")
    found = getattr(values, "DistributedVariable", None)
    return (found,) if isinstance(found, type) else ()


def local_part(variable: Any) -> Any:
    """What this process has of such a variable. To read the variable itself may be a collective
    operation (the moving mean of a BatchNormalization is), and one rank alone saves."""
    return variable.values[0]


# --- to the driver --------------------------------------------------------------------------------


class _Bare:
    """A model on its way to a process without the strategy that it was made in."""

    def __init__(self, model: Any):
        self.model = model

    def __reduce__(self) -> Any:
        from manta._frameworks.tensorflow.state import host_array
        package, text, weights, optimizer = parts_of(self.model)
        return _pickled.keras_model, (package, text, [*map(host_array, weights)],
                                      [*map(host_array, optimizer)])


def without_strategy(o: Any) -> Any:
    if isinstance(o, kinds()):
        return _Bare(o)
    return local_part(o).read_value() if isinstance(o, distributed_kinds()) else o

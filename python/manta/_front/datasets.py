# SPDX-License-Identifier: Apache-2.0
"""The data sets of a run: what run(dataset=…) is given, and what a train function gets of it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Callable, Mapping

from manta import _manta
from manta._front.session import SessionError

if TYPE_CHECKING:
    from manta.data import Dataset

_ALONE = "dataset"  # the name of the one that is given by itself


class Whole:
    """A data set of which every worker gets all rows."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def named(self, name: str) -> Whole:
        return Whole(self.dataset.named(name))

    def get_shard(self) -> Dataset:
        return self.dataset


# --- in the driver --------------------------------------------------------------------------------


def checked(given: Any, argument: str = "dataset") -> Any:
    """As the workers get it: a Dataset, or a dict or tuple of such, as deep as one likes."""
    if isinstance(given, Mapping):
        return {str(k): checked(v, f"{argument}[{k!r}]") for k, v in given.items()}
    if isinstance(given, (list, tuple)):
        return tuple(checked(v, f"{argument}[{i}]") for i, v in enumerate(given))
    from manta import data
    if isinstance(given, (data.Dataset, Whole)):
        return given
    for offers, read in (("__arrow_c_stream__", data.from_arrow),
                         ("__arrow_c_array__", data.from_arrow),
                         ("__getitem__", data.from_torch)):
        if hasattr(given, offers) and not isinstance(given, (str, bytes)):
            return read(given)
    raise TypeError(f"{argument} must be a Dataset of manta.data, or a dict or tuple of them, not "
                    f"{given!r}\nhint: manta.data.read_csv(path), manta.data.from_items(rows)")


# --- in a worker ----------------------------------------------------------------------------------


def _given(call: str) -> Any:
    if not _manta.in_session():
        raise SessionError(f"{call}() was called outside of a train function")
    from manta._runtime import worker
    return None if worker.job is None else worker.job.datasets


def _named(given: Any, name: str = "") -> Any:
    """Each with the name that its positions have in checkpoints."""
    path = f"{name}." if name else ""
    if isinstance(given, dict):
        return {k: _named(v, f"{path}{k}") for k, v in given.items()}
    if isinstance(given, tuple):
        return tuple(_named(v, f"{path}{i}") for i, v in enumerate(given))
    return given.named(name or _ALONE)


def _needed(call: str) -> Any:
    given = _given(call)
    if given is None:
        raise SessionError(f"{call}(): the run has no data set\nhint: trainer.run(train, "
                           "dataset=…), TorchTrainer(…, datasets={\"train\": …})")
    return _named(given)


def get_dataset(name: str | None = None) -> Any:
    """What was given to run(dataset=…): a Dataset, or one of a dict by its name. Of the whole
    `get_shard(rank)` is the part of a worker."""
    given = _needed("get_dataset")
    return _each(given if name is None else _pick(given, name, "get_dataset"), _all_of)


def get_datasets() -> Any:
    """The same: the tuple or the dict that was given."""
    given = _each(_needed("get_datasets"), _all_of)
    return given if isinstance(given, (tuple, dict)) else (given,)


def get_data_shard(name: str | None = None) -> Any:
    """The part of this worker: of each global batch its share. Of a dict, that of the data set of
    this name, or without one a dict of all shards; of a tuple the same."""
    given = _needed("get_data_shard")
    return _each(given if name is None else _pick(given, name, "get_data_shard"),
                 lambda d: d.get_shard())


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """The part of this worker of the data set of this name (datasets={"train": …}); None, with a
    warning, if the run was given none at all."""
    if _given("get_dataset_shard") is None:
        warnings.warn("get_dataset_shard(): the run has no data set\nhint: TorchTrainer(…, "
                      "datasets={\"train\": …})", stacklevel=2)
        return None
    return get_data_shard(dataset_name)


def _pick(given: Any, name: Any, call: str) -> Any:
    if isinstance(given, dict):
        if name in given:
            return given[name]
        raise KeyError(f"{call}({name!r}): the run's data sets are {', '.join(map(repr, given))}")
    if isinstance(given, tuple):
        if isinstance(name, int) and 0 <= name < len(given):
            return given[name]
        raise KeyError(f"{call}({name!r}): the run's data sets have the numbers 0 to "
                       f"{len(given) - 1}")
    if name in ("train", _ALONE):
        return given
    raise KeyError(f"{call}({name!r}): the run has one data set, without a name")


def _all_of(given: Dataset | Whole) -> Dataset:
    return given.dataset if isinstance(given, Whole) else given


def _each(given: Any, f: Callable[[Any], Any]) -> Any:
    if isinstance(given, dict):
        return {k: _each(v, f) for k, v in given.items()}
    if isinstance(given, tuple):
        return tuple(_each(v, f) for v in given)
    return f(given)

# SPDX-License-Identifier: Apache-2.0
"""Names that somebody reaches for and that are not here: what to write instead. And the names that
what is here keeps."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any, Callable, ParamSpec, Sequence, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class NotInThisVersion(ModuleNotFoundError):
    """A module that this version of manta does not have."""


_FIT = "import it from manta.train or manta.air: TorchTrainer(train, …).fit() is there"
_ONE = "import it from manta.util.sgd; or put the loop into a train function: "\
       "manta.sgd.Trainer(num_workers=2).run(train, config)"
_OPERATOR = "TrainingOperator, TorchTrainer, TFTrainer and their like are in manta.util.sgd"
_ACTORS = "manta trains models and has no tasks or actors: Trainer(None, num_workers=4).run("\
          "function) calls a function on workers, WorkerGroup(4) gives objects on them"

# Modules, with all below them.
MODULES = {
    "manta.util.sgd.tf": _OPERATOR, "manta.util.sgd.torch": _OPERATOR,
    "manta.experimental.sgd.pytorch": _OPERATOR, "manta.experimental.sgd.tf": _OPERATOR,
    "manta.util.sgd.v2": "import the name from manta.sgd: from manta.sgd import Trainer, report, …",
    "manta.sgd.torch": "from manta.train.torch import prepare_model, …, or from manta.sgd",
    "manta.serve": "it is not a part of manta", "manta.rllib": "it is not a part of manta",
    "manta.workflow": "it is not a part of manta",
}

_GENERATION_1 = ("TrainingOperator", "CreatorOperator", "TorchTrainer", "PyTorchTrainer",
                 "BaseTorchTrainable", "PyTorchTrainable", "TFTrainer", "TFTrainable")

# Attributes of a module, or of an object by the name of its class.
ATTRIBUTES: dict[str, dict[str, str]] = {
    "manta": {
        **dict.fromkeys(("remote", "kill", "cancel", "get_actor", "method"), _ACTORS),
        "serve": MODULES["manta.serve"],
    },
    "manta.sgd": {
        **dict.fromkeys(_GENERATION_1, _ONE),
        **dict.fromkeys(("ScalingConfig", "RunConfig", "CheckpointConfig", "Checkpoint", "Result",
                         "get_checkpoint", "get_context"), _FIT),
        "TensorflowTrainer": "import it from manta.train.tensorflow",
        "HorovodTrainer": "import it from manta.train.horovod",
        "FailureConfig": "Trainer(max_retries=3, retry_exceptions=…)",
        "SGDIterator": "Trainer.run_generator(train) gives the iterator",
        "torch": MODULES["manta.sgd.torch"],
    },
    "Trainer": {
        "fit": "run(train, config)", "train": "run(train, config)",
        "validate": "run(validate, config)",
        "latest_checkpoint_path": "latest_checkpoint_dir, or best_checkpoint_path",
        "get_model": "return the model's state from the train function, or get_last_checkpoint()",
        "save": "sgd.save_checkpoint(…) in the train function",
        "load": "run(train, checkpoint=…)",
    },
}
_TABLES = "manta.data feeds training: let an engine of tables (Polars, DuckDB, Ray Data) do it, "\
          "and read its files, or take its rows by from_arrow(…)"
ATTRIBUTES["Dataset"] = {
    **dict.fromkeys(("aggregate", "groupby", "join", "max", "mean", "min", "sort", "std", "sum",
                     "unique"), _TABLES),
    "fully_executed": "materialize()", "lazy": "it is lazy", "rewindow": "window(…)",
    "iter_epochs": "for epoch in range(n): for batch in batches: …",
    "split_at": "split_at_indices([…])", "head": "take(n)", "sample": "random_sample(fraction)",
    "shuffle": "random_shuffle(seed)", "skip": "split_at_indices([n])[1]",
    "batch": "iter_batches(batch_size)", "num_rows": "count()",
    "size_bytes": "stats()[\"bytes\"], after a pass", "iter_tf_batches": "to_tf(…)",
    "to_numpy_refs": "iter_batches()", "to_arrow_refs": "pyarrow.table(ds)",
    "to_pandas_refs": "to_pandas()", "write_numpy": "write_parquet(…)",
    "write_tfrecords": "write_parquet(…)", "write_images": "write_parquet(…)",
    "randomize_block_order": "random_shuffle(seed)",
}
_READ_BYTES = "read_binary_files(paths).map(f), where f makes an array of row[\"bytes\"]"
_AS_PARQUET = "let a library that reads it write Parquet, or take its rows by from_arrow(…)"
ATTRIBUTES["manta.data"] = {
    **dict.fromkeys(("read_images", "read_audio", "read_videos", "read_webdataset"), _READ_BYTES),
    **dict.fromkeys(("read_sql", "read_bigquery", "read_mongo", "read_avro", "read_delta",
                     "read_iceberg", "read_lance", "read_hudi", "read_databricks_tables",
                     "read_datasource", "from_modin", "from_mars", "from_tf"), _AS_PARQUET),
    **dict.fromkeys(("from_pandas_refs", "from_arrow_refs", "from_numpy_refs"),
                    "from_pandas, from_arrow and from_numpy take lists"),
    "preprocessors": "map_batches(f), or expressions: add_column(\"z\", (col(\"x\") - mean) / std)",
    "datasource": "a pattern, such as \"folder/*.png\", chooses files",
    "read_parquet_bulk": "read_parquet(paths)",
    "set_progress_bars": "leave it out: none are drawn",
}
_SEARCHERS = {
    "hyperopt": "HyperOptSearch", "bohb": "TuneBOHB", "bayesopt": "BayesOptSearch",
    "ax": "AxSearch", "nevergrad": "NevergradSearch", "skopt": "SkOptSearch",
    "hebo": "HEBOSearch", "zoopt": "ZOOptSearch", "dragonfly": "DragonflySearch",
    "sigopt": "SigOptSearch", "flaml": "CFO"}
_SEARCH = "TPESearch, GPSearch and CMAESSearch of manta.tune.search are made in C; OptunaSearch "\
          "has all samplers of Optuna; any other searcher is a class of yours with suggest()"
MODULES |= dict.fromkeys((f"manta.tune.{where}.{name}" for where in ("search", "suggest")
                          for name in _SEARCHERS), _SEARCH)
MODULES |= {
    "manta.tune.integration": "manta.tune.integration has horovod, lightgbm, pytorch_lightning, "
                              "ray_train, tensorflow, torch and xgboost; Keras has "
                              "manta.air.integrations.keras, trackers are in manta.air",
    "manta.tune.automl": _SEARCH,
    "manta.tune.sklearn": "it is the package tune-sklearn, which needs Ray; a function that calls "
                          "estimator.set_params(**config).fit(…) can be tuned",
    "manta.tune.examples": "these are files of Ray's: put the one that is imported beside the "
                           "program",
    "manta.tune.cli": "`manta tune status|best|resume DIR`"}
ATTRIBUTES["manta.tune.search"] = dict.fromkeys((*_SEARCHERS.values(), "BlendSearch"), _SEARCH)
ATTRIBUTES["manta.tune"] = {
    "register_env": "environments belong to RLlib, which is not a part of manta",
    "DurableTrainable": "tune.Trainable: checkpoints are durable by themselves",
    "durable": "checkpoints are durable by themselves",
    "trial_runner": "tune.Callback is told of every event of an experiment",
    "get_trial_checkpoint": "tune.get_checkpoint()",
    "Analysis": "tune.ExperimentAnalysis(directory)"}
ATTRIBUTES["manta.tune.utils"] = {
    "wait_for_gpu": "a worker gets a GPU when whoever had it before has ended"}
ATTRIBUTES["manta.tune.schedulers"] = {
    "PopulationBasedTrainingReplay": "the config of every trial is in ExperimentAnalysis",
    "BOHB": "HyperBandScheduler with TPESearch"}
ATTRIBUTES["manta.tune.logger"] = dict.fromkeys(
    ("CSVLogger", "DEFAULT_LOGGERS", "JsonLogger", "LegacyLoggerCallback", "MLFLowLogger",
     "TBXLogger", "UnifiedLogger"),
    "callbacks=[JsonLoggerCallback(), CSVLoggerCallback()] write files of every trial")
for _same in ("manta.train", "manta.train.torch"):
    ATTRIBUTES[_same] = ATTRIBUTES["manta.sgd"]

# Arguments by names of other systems.
ARGUMENTS = {
    "num_gpus": "gpus_per_worker, for each worker", "num_cpus": "cpus_per_worker, for each worker",
    "num_cpus_per_worker": "cpus_per_worker", "num_gpus_per_worker": "gpus_per_worker",
    "additional_resources_per_worker": "resources_per_worker",
    "scaling_config": "num_workers, use_gpu and resources_per_worker",
    "max_failures": "max_retries", "failure_config": "max_retries and retry_exceptions",
    "run_config": "logdir, name and callbacks", "storage_path": "logdir", "local_dir": "logdir",
    "datasets": "run(train, dataset=…)",
    "train_loop_config": "config, of run()", "train_loop_per_worker": "run(train)",
    "epochs": "config={\"epochs\": …}", "timeout": "timeout_s",
    **dict.fromkeys(("delimiter", "sep"), "separator"), "dtype": "types={column: type}",
    "usecols": "columns", "na_values": "missing", "filesystem": "left out: keys of s3:// come from "
    "the environment, its endpoint from AWS_ENDPOINT_URL", "parse_options": "separator and quote",
    "read_options": "header=False, names and block_bytes", "convert_options": "types and missing",
    **dict.fromkeys(("file_extensions", "partition_filter"), "a pattern: \"folder/*.png\""),
    "shuffle": "random_shuffle(seed)",
}


# --- modules and attributes -----------------------------------------------------------------------


def absent_module(name: str) -> str | None:
    """What is said of it; None: nothing is known."""
    from manta import _aliases
    parent, _, last = name.rpartition(".")
    owners = (parent, *_aliases.ALIASES.get(parent, ()))
    hint = next((said for o in owners if (said := ATTRIBUTES.get(o, {}).get(last))), None)
    at = name
    while not hint and at:
        hint = MODULES.get(at)
        at = at.rpartition(".")[0]
    return hint and f"{name} is not in this version of manta\nhint: {hint}"


def refuse(name: str) -> None:
    """When nobody else has found the module: `import manta.tune` and `from manta.sgd import X` end
    here. Who only looks whether there is one is told that there is none."""
    if (said := absent_module(name) or _misspelt(name)) and is_import():
        raise NotInThisVersion(said)


def _misspelt(name: str) -> str | None:
    """What is said of `from manta.sgd import Trainr`; None: nothing there looks like it."""
    parent, _, last = name.rpartition(".")
    near = nearest(last, dir(sys.modules[parent])) if parent in sys.modules else None
    return near and f"{parent} has no {last!r}\nhint: it has {near!r}"


def is_import() -> bool:
    """Called by an import, not by importlib.util.find_spec()."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    while frame and frame.f_code.co_name == "_find_spec":
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_find_and_load_unlocked"


def absent(owner: str, name: str, known: Sequence[str] = ()) -> str:
    """What an AttributeError says of `owner`, a module or a class."""
    if hint := ATTRIBUTES.get(owner, {}).get(name):
        return f"{owner}.{name} is not in this version of manta\nhint: {hint}"
    near = nearest(name, known)
    return f"{owner} has no {name!r}" + (f"\nhint: it has {near!r}" if near else "")


def nearest(name: str, known: Sequence[str]) -> str | None:
    import difflib
    lower: dict[str, str] = {}
    for k in known:  # a class counts more than a module of its name
        if not k.startswith("_") and (k.lower() not in lower or k != k.lower()):
            lower[k.lower()] = k
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.7)
    return lower[found[0]] if found else None


# --- arguments ------------------------------------------------------------------------------------


def arguments(function: Callable[P, R]) -> Callable[P, R]:
    """An unknown keyword argument of `function` is answered with the name that is meant."""
    code = function.__code__
    known = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    what = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise TypeError(unknown(what, name, [k for k in known if k != "self"]))
        return function(*args, **kwargs)
    return checked


def unknown(what: str, name: str, known: Sequence[str]) -> str:
    """What a TypeError says of a keyword argument."""
    near = nearest(name, known)
    if near is None and name in ARGUMENTS:
        near = ARGUMENTS[name]
    if near is None:
        near = f"it takes {', '.join(known)}"
        if what.endswith((".run", ".run_generator")):
            near = f"what the train function is to get goes into config={{{name!r}: …}}"
        return f"{what}() has no argument {name!r}\nhint: {near}"
    return f"{what}() has no argument {name!r}\nhint: it is {near}"


# --- classes --------------------------------------------------------------------------------------


def public(cls: C) -> C:
    """A class whose objects users keep: pickles and tracebacks name it manta.NAME, where it stays
    whatever file it moves to. manta.__getattr__ finds it."""
    cls.__module__ = "manta"
    return cls

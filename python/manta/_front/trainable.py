# SPDX-License-Identifier: Apache-2.0
"""A training in steps, which can be saved and restored between any two: what a tuner drives, or a
program by hand."""

from __future__ import annotations

import json
import os
import pickle
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from manta import _manta

_RECORD = "trainable.json"  # beside a checkpoint: what train() counts, and what kind it is
_DICT = "checkpoint.pkl"  # of a save_checkpoint() that returned a dict

Bundles = list[dict[str, float]]  # resources: first those of the driver, then of each worker


class Trainable:
    """A subclass has setup and step and, to be saved, save_checkpoint and load_checkpoint.

        class Mine(Trainable):
            def setup(self, config): …
            def step(self): return {"loss": …}

        mine = Mine({"lr": 0.1})
        result = mine.train()     # with training_iteration, time_total_s, …
        path = mine.save()
        mine.stop()
    """

    def __init__(self, config: dict[str, Any] | None = None,
                 logger_creator: Callable[[Any], Any] | None = None, *,
                 logdir: str | Path | None = None):
        """logger_creator is taken for its `logdir` alone."""
        self.config: dict[str, Any] = config or {}
        self._logdir = None if logdir is None else Path(logdir).expanduser()
        if logger_creator is not None:
            self._logdir = Path(logger_creator(self.config).logdir)
        self._iteration = self._timesteps = self._since_restore = 0
        self._time = 0.0
        self._stopped = False
        self.setup(self.config)

    # --- to be overridden -------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Once, at the beginning."""

    def step(self) -> dict[str, Any]:
        """One iteration: its metrics. "done": True ends the training, "timesteps_this_iter" is
        added up."""
        raise NotImplementedError(f"{type(self).__name__} has no step(self)")

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Writes to the directory and returns a path in it, or None for all of it; or returns a
        dict."""
        raise NotImplementedError(f"{type(self).__name__} has no save_checkpoint(self, "
                                  f"checkpoint_dir)")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Takes what save_checkpoint returned: the path, or the dict."""
        raise NotImplementedError(f"{type(self).__name__} has no load_checkpoint(self, checkpoint)")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Takes another config without being made anew: True if it can."""
        return False

    def log_result(self, result: dict[str, Any]) -> None:
        """Gets what train() is about to return."""

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        """Writes the model to the directory: the path of each format. (So Ray names it.)"""
        return {}

    def cleanup(self) -> None:
        """At the end."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Bundles | None:
        """What such a training holds; None: whatever the tuner gives it."""
        return None

    # --- to be called -----------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """step(), and what is known of every iteration besides."""
        self._check()
        began = time.monotonic()
        given = self.step()
        if not isinstance(given, dict):
            raise TypeError(f"{type(self).__name__}.step() must return a dict, not {given!r}")
        took = given.get("time_this_iter_s", time.monotonic() - began)
        self._iteration += 1
        self._since_restore += 1
        self._time += took
        self._timesteps += given.get("timesteps_this_iter", 0)
        now = time.time()
        known = {"done": False, "training_iteration": self._iteration,
                 "iterations_since_restore": self._since_restore, "time_this_iter_s": took,
                 "time_total_s": self._time, "timesteps_total": self._timesteps or None,
                 "timestamp": int(now),
                 "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now)),
                 "pid": os.getpid(), "hostname": socket.gethostname(), "config": self.config}
        result = {**known, **given}
        self.log_result(result)
        return result

    def export_model(self, export_formats: str | Iterable[str],
                     export_dir: str | Path | None = None) -> dict[str, str]:
        """What _export_model() wrote: by default to `logdir`."""
        self._check()
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, str(export_dir or self.logdir))

    def save(self, checkpoint_dir: str | Path | None = None) -> str:
        """The path to give to restore(): what save_checkpoint returned, or the directory."""
        self._check()
        where = self.logdir if checkpoint_dir is None else Path(checkpoint_dir).expanduser()
        where = where / f"checkpoint_{self._iteration:06}"
        where.mkdir(parents=True, exist_ok=True)
        made = self.save_checkpoint(str(where))
        if isinstance(made, dict):
            (where / _DICT).write_bytes(pickle.dumps(made))
            made = where / _DICT
        path = Path(made or where)
        if path != where and where not in path.parents:
            raise ValueError(f"save_checkpoint() returned {path}, which is not in {where}")
        record = {"iteration": self._iteration, "time": self._time, "timesteps": self._timesteps,
                  "path": str(path.relative_to(where))}
        (where / _RECORD).write_text(json.dumps(record) + "\n")
        return str(path)

    def restore(self, checkpoint_path: str | Path) -> None:
        """Continues from what save() returned, its directory, or a checkpoint of a trial. A dict is
        unpickled: only from somebody whom you trust."""
        self._check()
        given = Path(checkpoint_path).expanduser()
        places = (given, *given.parents, *given.glob("checkpoint_*"))
        where = next((p for p in places if (p / _RECORD).is_file()), None)
        if where is None:
            raise ValueError(f"{given} is not a checkpoint of save(): there is no {_RECORD}")
        record = json.loads((where / _RECORD).read_text())
        path = where / record["path"]
        self.load_checkpoint(pickle.loads(path.read_bytes()) if path.name == _DICT else str(path))
        self._iteration, self._time = record["iteration"], record["time"]
        self._timesteps, self._since_restore = record["timesteps"], 0

    def reset(self, new_config: dict[str, Any]) -> bool:
        """With another config from the beginning; False if it has to be made anew."""
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        self._iteration = self._timesteps = self._since_restore = 0
        self._time = 0.0
        return True

    def stop(self) -> None:
        """Ends it. Idempotent."""
        if not self._stopped:
            self._stopped = True
            self.cleanup()

    def _check(self) -> None:
        if self._stopped:
            raise RuntimeError(f"this {type(self).__name__} was stopped")

    # --- what it is -------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        """How many were made."""
        return self._iteration

    training_iteration = iteration

    @property
    def logdir(self) -> Path:
        """Where it saves: a directory of its own, made when it is first asked for."""
        if self._logdir is None:
            results = Path(_manta.knob("MANTA_RESULTS") or "~/manta_results").expanduser()
            results.mkdir(parents=True, exist_ok=True)
            self._logdir = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__}-", dir=results))
        return self._logdir

    @property
    def trial_id(self) -> str:
        """Of the trial that drives it; "default" by hand."""
        if not _manta.in_session():
            return "default"
        from manta._front.fit import context
        return context.facts.trial_id or self.trial_name.rpartition("_")[2]

    @property
    def trial_name(self) -> str:
        """The name of that trial's directory."""
        return self.logdir.name if _manta.in_session() else "default"

    @property
    def trial_resources(self) -> Any:
        """What that trial holds."""
        from manta._front.fit import context
        return context.get_trial_resources()

    def get_config(self) -> dict[str, Any]:
        return self.config

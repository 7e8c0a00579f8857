# SPDX-License-Identifier: Apache-2.0
"""What fit() gives: the metrics of rank 0, and the checkpoints on disk."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Iterator

from manta import _manta
from manta._front import storage as _storage
from manta._front.callbacks import SGDCallback
from manta._front.fit.checkpoint import MANIFEST, Checkpoint
from manta._front.fit.configs import CheckpointConfig
from manta._names import public

Row = dict[str, Any]

ROWS = "result.json"  # in the run's directory: rank 0's reports, a line each


@public
@dataclass(eq=False)
class Result:
    """metrics: rank 0's last report. checkpoint: the newest. best_checkpoints: those on disk,
    oldest first, each with the metrics of its report; if they are kept by a score, the best ones.
    path (= log_dir): the run's directory. error: what the run ended with, or None. config: that of
    the train function. rows: all reports of rank 0."""
    metrics: Row = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    error: Exception | None = None
    path: str = ""
    best_checkpoints: list[tuple[Checkpoint, Row]] = field(default_factory=list, repr=False)
    config: Any = field(default=None, repr=False)
    rows: list[Row] = field(default_factory=list, repr=False)

    @property
    def log_dir(self) -> Path:
        return Path(self.path)

    @property
    def metrics_dataframe(self) -> Any:
        """Rank 0's reports, one row each, as a DataFrame of pandas."""
        try:
            import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ModuleNotFoundError:
            raise ModuleNotFoundError("metrics_dataframe needs pandas\nhint: pip install pandas; "
                                      "Result.rows has the same as a list of dicts",
                                      name="pandas") from None
        return pandas.DataFrame(self.rows)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Result:
        """That of an earlier run, whose directory `Result.path` was, or its URI."""
        run = _storage.fetched("path", path)
        if not (run / "run.log").exists():
            raise ValueError(f"{run} is not the directory of a run\nhint: Result.path, a directory "
                             f"in storage_path/name")
        return read(run, CheckpointConfig())

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Of those on disk the one with the best value of a reported metric."""
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', not {mode!r}")
        scored = [(m[metric], c) for c, m in self.best_checkpoints if metric in m]
        if not scored:
            raise RuntimeError(f"no checkpoint on disk has the metric {metric!r}")
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]


def read(run: Path, config: CheckpointConfig, given: Any = None) -> Result:
    """That of a run which is over, out of its directory."""
    rows = rows_of(run)
    found = kept(run, rows, config)
    stored = manifests(run)
    return Result(rows[-1] if rows else {}, _on_disk(*stored[-1]) if stored else None, None,
                  str(run), found, given, rows)


class History(SGDCallback):
    """Rank 0's reports as they come, in memory and as lines of JSON in the run's directory; those
    that a revival has made void go."""

    raise_errors = True

    def __init__(self, trial_id: str):
        self.trial_id = trial_id
        self.rows: list[Row] = []
        self.ends: list[int] = []  # of their lines
        self.file: IO[bytes] | None = None

    def start_training(self, logdir: str, config: Any, num_workers: int, **info: Any) -> None:
        path = Path(logdir, ROWS)
        if path.exists():  # of a run that is resumed
            for row, end in _lines(path):
                self.rows.append(row)
                self.ends.append(end)
        self.file = open(path, "ab", buffering=0)
        self.file.truncate(self.ends[-1] if self.ends else 0)  # behind a line that broke off

    def handle_result(self, results: list[Row | None], rewound_to: int | None = None,
                      **info: Any) -> None:
        if rewound_to is not None:
            self._rewind(rewound_to)
        if results and results[0] is not None:
            self.rows.append(self._completed(results[0]))
            if self.file is not None:
                self.file.write(json.dumps(self.rows[-1], default=repr).encode() + b"\n")
                self.ends.append(self.file.tell())

    def finish_training(self, error: bool = False, **info: Any) -> None:
        if self.file is not None:
            self.file.close()

    def _rewind(self, to: int) -> None:
        while self.rows and self.rows[-1]["training_iteration"] > to:
            self.rows.pop()
            self.ends.pop()
        if self.file is not None:
            self.file.truncate(self.ends[-1] if self.ends else 0)

    def _completed(self, row: Row) -> Row:
        """With the names that programs look for."""
        before = self.rows[-1]["time_total_s"] if self.rows else 0.0
        stamp = row["_timestamp"]
        return {"done": False, **row, "training_iteration": row["_training_iteration"],
                "time_this_iter_s": row["_time_this_iter_s"],
                "time_total_s": before + row["_time_this_iter_s"], "timestamp": stamp,
                "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(stamp)),
                "trial_id": self.trial_id}


def _lines(path: Path) -> Iterator[tuple[Row, int]]:
    """The rows of a file, each with the end of its line; up to one that broke off."""
    end = 0
    for line in path.read_bytes().splitlines(keepends=True):
        end += len(line)
        try:
            row = json.loads(line)
        except ValueError:
            return
        if line.endswith(b"\n") and isinstance(row, dict):
            yield row, end


def rows_of(run: Path) -> list[Row]:
    """Those that a run has left."""
    return [row for row, _ in _lines(run / ROWS)] if (run / ROWS).exists() else []


def _at(rows: list[Row], iteration: int) -> Row:
    """The report of an iteration."""
    return next((row for row in reversed(rows) if row["training_iteration"] == iteration), {})


# --- checkpoints on disk --------------------------------------------------------------------------


def manifests(run: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Of the checkpoints in a run's directory, oldest first."""
    found = []
    for path in sorted((run / "checkpoints").glob(f"[0-9]*/{MANIFEST}")):
        try:
            found.append((path.parent, json.loads(path.read_text())))
        except FileNotFoundError:  # retention has just removed it
            pass
    return found


def newest(run: Path, handle: _manta.Checkpoint | None) -> Checkpoint | None:
    """What Result.checkpoint is: the newest in memory, and on disk if it has come there."""
    if handle is None:
        return None
    paths = [path for path, m in manifests(run) if m["iteration"] == handle.iteration()]
    return Checkpoint._of(handle, run / "checkpoints", True, paths[-1] if paths else None)


def newest_iteration(run: Path) -> int:
    """Of the newest checkpoint on disk, or -1."""
    found = manifests(run)
    return int(found[-1][1]["iteration"]) if found else -1


def kept(run: Path, rows: list[Row], config: CheckpointConfig) -> list[tuple[Checkpoint, Row]]:
    """What Result.best_checkpoints is. The newest is on disk whatever its score."""
    found = [(path, m) for path, m in manifests(run)]
    n = config.num_to_keep
    if config.checkpoint_score_attribute is not None and n is not None and len(found) > n:
        sign = 1 if config.checkpoint_score_order == "max" else -1
        scored = sorted((m["score"] * sign, i) for i, (_, m) in enumerate(found)
                        if m["score"] is not None)
        found = [found[i] for i in sorted(i for _, i in scored[-n:])]
    return [(_on_disk(path, m), _at(rows, m["iteration"])) for path, m in found]


def _on_disk(path: Path, manifest: dict[str, Any]) -> Checkpoint:
    """It is opened when it is read, but for one that stands for a directory."""
    if not manifest.get("directory"):
        return Checkpoint._made(path=path, trust=True)
    return Checkpoint._of(_manta.open_checkpoint(str(path), False), path.parent, True)

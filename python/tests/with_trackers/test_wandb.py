# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases offline: what its package keeps of a run, read back from its own file."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from wandb.proto import wandb_internal_pb2 as pb

from manta import sgd
from manta.sgd import Trainer, WandbCallback

BLOCK = 32768  # of the LevelDB log that such a file is


def records(path: Path) -> Iterator[Any]:
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at:at + 7])
        part = data[at + 7:at + 7 + size]
        at += 7 + size
        if kind == 0 and size == 0:
            return
        whole = part if kind in (1, 2) else whole + part
        if kind in (1, 4):
            record = pb.Record()
            record.ParseFromString(whole)
            yield record


def kept(directory: str) -> tuple[set[str], list[dict[str, Any]], dict[str, Any], list[int]]:
    """Ids, rows, config and exit codes, over all files of the run."""
    ids: set[str] = set()
    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    codes: list[int] = []
    for path in sorted(Path(directory).glob("wandb/offline-run-*/run-*.wandb")):
        for r in records(path):
            if r.WhichOneof("record_type") == "run":
                ids.add(r.run.run_id)
                config |= {u.key: json.loads(u.value_json) for u in r.run.config.update}
            elif r.WhichOneof("record_type") == "history":
                rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json)
                             for i in r.history.item})
            elif r.WhichOneof("record_type") == "exit":
                codes.append(r.exit.exit_code)
    return ids, rows, config, codes


def train(config: dict[str, Any]) -> None:
    begin = (sgd.load_checkpoint() or {"i": 0})["i"]
    for i in range(begin + 1, 31):
        time.sleep(config.get("s", 0))
        sgd.report(loss=1 / i, text="t")
        if i % 10 == 0:
            sgd.save_checkpoint(i=i)
        if config.get("die") == i and begin == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("die", [0, 25])
def test_a_run_offline(tmp_path: Path, die: int) -> None:
    with Trainer(None, num_workers=1, logdir=tmp_path) as t:
        t.run(train, {"die": die, "s": 0.02, "lr": 0.5},
              callbacks=[WandbCallback("project", mode="offline", tags=["a"])])
        directory = str(t.latest_run_dir)
    ids, rows, config, codes = kept(directory)
    assert len(ids) == 1, ids
    assert [row["_step"] for row in rows] == list(range(1, 31)), rows
    assert [row["loss"] for row in rows] == [1 / i for i in range(1, 31)]
    assert config["lr"] == 0.5 and codes == [0], (config, codes)


def test_a_package_that_is_not_there_is_told(tmp_path: Path,
                                             capfd: pytest.CaptureFixture[str]) -> None:
    callback = WandbCallback("project", mode="offline")
    callback._options["python"] = "/usr/bin/false"
    with Trainer(None, num_workers=1, logdir=tmp_path) as t:
        assert t.run(lambda: 7, callbacks=[callback]) == [7]
    assert "the helper process for wandb ended: exit code 1" in capfd.readouterr().err


def test_each_trial_is_a_run(tmp_path: Path) -> None:
    from manta import tune
    from manta.air.integrations.wandb import WandbLoggerCallback
    found = tune.run(lambda config: tune.report(loss=config["x"], left_out=1),
                     {"x": tune.grid_search([1, 2])}, verbose=0, local_dir=tmp_path,
                     max_concurrent_trials=1, callbacks=[WandbLoggerCallback(
                         project="p", mode="offline", excludes=["left_out"], job_type="sweep")])
    ids = set()
    for trial in found.trials:
        id, rows, config, codes = kept(trial.logdir)
        ids |= id
        assert config["x"] == trial.config["x"] and codes == [0]
        assert [row["loss"] for row in rows] == [config["x"]] and "left_out" not in rows[0]
    assert len(ids) == 2


def by_itself(config: dict[str, Any]) -> None:
    from manta.air.integrations.wandb import setup_wandb
    run = setup_wandb(config, project="p", mode="offline")
    for i in range(3):
        run.log({"loss": i})
        sgd.report(i=i)
    run.finish()


def test_a_train_function_logs_by_itself(tmp_path: Path) -> None:
    with Trainer(None, num_workers=2, logdir=tmp_path) as t:
        t.run(by_itself, {"lr": 0.5})
        ids, rows, config, codes = kept(str(t.latest_run_dir))
    assert len(ids) == 1 and config["lr"] == 0.5 and codes == [0]  # rank 1 has none
    assert [row["loss"] for row in rows] == [0, 1, 2]

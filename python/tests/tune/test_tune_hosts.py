# SPDX-License-Identifier: Apache-2.0
"""Trials whose workers are on other hosts: agents beside ours stand for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from manta import Host, _command, sgd, tune

AGENT = f"exec {os.environ.get('MANTA_BIN') or _command.path()} agent --stdio"
HOSTS = [Host("a", 1, AGENT), Host("b", 1, AGENT)]
DATA = b"x" * (1 << 20)  # more than what travels once for all trials of one host


def train(config: dict[str, Any]) -> None:
    start = (sgd.load_checkpoint() or {"i": 0})["i"]
    for i in range(start + 1, 100):
        sgd.report(loss=config["x"] / i, size=sgd.world_size(), data=len(DATA), start=start)
        sgd.save_checkpoint(i=i)
        died = Path(config["where"], f"died-{config['x']}")
        if config["dies"] and i == 2 and sgd.world_rank() == 1 and not died.exists():
            died.touch()
            os._exit(1)


@pytest.mark.parametrize("dies", [False, True])
def test_a_trial_spans_hosts(tmp_path: Path, dies: bool) -> None:
    """Each report is decided upon; a lost rank is a failure of the trial, which is tried again."""
    trainer = sgd.Trainer(None, num_workers=2, hosts=HOSTS, cpus_per_worker=0.1)
    found = tune.run(trainer.to_tune_trainable(train),
                     {"x": tune.grid_search([2.0, 1.0]), "dies": dies,
                      "where": str(tmp_path)}, metric="loss", mode="min",
                     stop={"training_iteration": 4}, max_failures=1, max_concurrent_trials=2,
                     local_dir=tmp_path, verbose=0)
    rows = [t.last_result for t in found.trials]
    assert [r["training_iteration"] for r in rows] == [4, 4] and found.best_config["x"] == 1.0
    assert {(r["size"], r["data"]) for r in rows} == {(2, len(DATA))}
    assert [t.num_failures for t in found.trials] == [int(dies)] * 2
    assert all(t.checkpoint is not None for t in found.trials)

# SPDX-License-Identifier: Apache-2.0
"""06_files_of_a_run - the rows of a run as JSON, as CSV, and in TensorBoard.

Two workers report a loss that shrinks. Three callbacks write it down, in a process of their own:
rank 0's rows as results.json, the mean over the workers as progress.csv, and event files for
TensorBoard. When run() returns, the files are complete.
"""

import math

from manta import sgd
from manta.sgd import CSVCallback, JsonCallback, TensorboardCallback, Trainer

STEPS = 20


def train(config):
    for step in range(1, config["steps"] + 1):
        loss = math.exp(-step * config["lr"]) * (1 + 0.1 * sgd.world_rank())
        sgd.report(loss=loss, error={"train": loss, "test": loss * 1.2})
    return loss


if __name__ == "__main__":
    files = [JsonCallback(), CSVCallback(workers_to_log="all", aggregate="mean"),
             TensorboardCallback()]
    with Trainer(None, num_workers=2, callbacks=files) as trainer:
        trainer.run(train, {"lr": 0.125, "steps": STEPS})
        where = trainer.latest_run_dir
    for name in ("results.jsonl", "progress.csv"):
        lines = (where / name).read_text().splitlines()
        print(f"{name} has {len(lines)} lines, the last one is\n  {lines[-1]}")
    print(f"tensorboard --logdir {where}")

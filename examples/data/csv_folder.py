# SPDX-License-Identifier: Apache-2.0
"""Trains on a folder of CSV files that is larger than the memory that may be used for it.

    python csv_folder.py [FOLDER or MEGABYTES]

Without a FOLDER one of so many MEGABYTES (32) is written first. Threads of C parse ahead, and at
most LIMIT bytes of rows that were parsed wait for their use, whatever the size of the folder.
"""

import random
import sys
import tempfile
from pathlib import Path

from manta import sgd
from manta.data import read_csv
from manta.sgd import Trainer

LIMIT = 2 << 20
FEATURES, WEIGHTS = 4, (3.0, -2.0, 0.5, 1.0)


def write_folder(folder, megabytes):
    draw = random.Random(0)
    rows = []
    for _ in range(1 << 12):
        x = [draw.uniform(-1, 1) for _ in range(FEATURES)]
        y = sum(a * b for a, b in zip(x, WEIGHTS))
        rows.append(",".join(f"{v:.9f}" for v in (*x, y)))
    text = ",".join([*(f"x{i}" for i in range(FEATURES)), "y"]) + "\n" + "\n".join(rows) + "\n"
    for k in range(max(1, (megabytes << 20) // len(text))):
        (folder / f"part-{k:05}.csv").write_text(text)


def train(config):
    import torch
    model = sgd.prepare_model(torch.nn.Linear(FEATURES, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    shard = sgd.get_data_shard("train")
    batches = shard.to_torch(label_column="y", batch_size=2048, memory_limit=LIMIT)
    rows = 0
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        rows += len(x)
    weights = [round(w, 2) for w in next(model.parameters()).flatten().tolist()]
    return {"rows": rows, "most bytes": batches.stats()["bytes_max"], "weights": weights}


def main(given="32"):
    with tempfile.TemporaryDirectory() as made:
        folder = made if given.isdigit() else given
        if folder == made:
            write_folder(Path(made), int(given))
        dataset = read_csv(folder, block_bytes=1 << 18).random_shuffle(seed=1, window=4096)
        size = sum(p.stat().st_size for p in Path(folder).glob("*.csv"))
        with Trainer("torch", num_workers=2) as trainer:
            results = trainer.run(train, dataset={"train": dataset})
        print(f"{size / 1e6:.0f} MB, {sum(r['rows'] for r in results)} rows")
        for rank, r in enumerate(results):
            print(f"rank {rank}: weights {r['weights']}, at most {r['most bytes'] / 1e6:.1f} MB "
                  "were parsed ahead")


if __name__ == "__main__":
    main(*sys.argv[1:])

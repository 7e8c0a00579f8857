# SPDX-License-Identifier: Apache-2.0
"""Goes on in the middle of an epoch: a worker is killed there, and every row is seen once.

    python resume.py

The position of the data is a part of each checkpoint by itself. Ended from outside (Ctrl-C), the
run is taken up again by `manta resume`, also with another number of workers.
"""

import os

from manta import sgd
from manta.data import range as numbers
from manta.sgd import Trainer

ROWS, EPOCHS = 120, 2


def train():
    state = sgd.load_checkpoint() or {"epoch": 0, "seen": []}
    seen = list(state["seen"])
    if seen:
        print(f"goes on in epoch {state['epoch']}, behind {len(seen)} rows")
    for epoch in range(state["epoch"], EPOCHS):
        for batch in sgd.get_data_shard().iter_batches(batch_size=10):
            seen += [(epoch, i) for i in batch["id"].tolist()]
            sgd.report(rows=len(seen))
            sgd.save_checkpoint(epoch=epoch, seen=seen)
            if epoch == 1 and not state["seen"] and len(seen) == ROWS + 50:
                os.kill(os.getpid(), 9)
    return seen


def main():
    dataset = numbers(ROWS).random_shuffle(seed=1)
    with Trainer(None, num_workers=1) as trainer:
        seen, = trainer.run(train, dataset=dataset)
    wanted = [(epoch, i) for epoch in range(EPOCHS) for i in range(ROWS)]
    print(f"{len(seen)} rows, each one once: {sorted(seen) == wanted}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""02_report_and_checkpoint - rows of metrics on the way, the state on disk at the end.

Gradient descent with a noisy gradient looks for the minimum of (w - TARGET)^2. Every rank reports
its loss; rank 0's w is the checkpoint. The two newest checkpoints are kept, and the one with the
smallest loss. A second run then begins from that best one.
"""

import math

from manta import sgd
from manta.sgd import CheckpointStrategy, SGDCallback, Trainer

STEPS, N, TARGET = 12, 8, 3.0


# --- in the workers -------------------------------------------------------------------------------


def descend(w, step, rank):
    """One step with a noise that shrinks; the loss after it."""
    for i in range(N):
        noise = math.sin(step * 131 + rank * 17 + i * 7) * 2
        w[i] -= 0.2 * (2 * (w[i] - TARGET) + noise)
    return sum((x - TARGET) ** 2 for x in w) / N


def train():
    w, step = [0.0] * N, 0
    if state := sgd.load_checkpoint():
        w, step = state["w"], state["step"]
        print(f"continuing from step {step}")
    for step in range(step + 1, step + STEPS + 1):
        loss = descend(w, step - 1, sgd.world_rank())
        sgd.report(step=step, loss=loss)  # first the row, then what belongs to it
        sgd.save_checkpoint(step=step, w=w)
    return loss


# --- in the driver --------------------------------------------------------------------------------


class Show(SGDCallback):
    def handle_result(self, results, iteration):
        print(f"iteration {iteration:2}  loss", *(f" {row['loss']:.4f}" for row in results))


if __name__ == "__main__":
    keep = CheckpointStrategy(num_to_keep=2, checkpoint_score_attribute="loss",
                              checkpoint_score_order="min")
    with Trainer(backend=None, num_workers=2, callbacks=[Show()]) as trainer:
        trainer.run(train, checkpoint_strategy=keep)
        print(f"files in {trainer.latest_run_dir}:")
        for path in sorted(trainer.latest_run_dir.rglob("*")):
            if path.is_file():
                print(f"  {path.stat().st_size:8}  {path.relative_to(trainer.latest_run_dir)}")
        best = trainer.best_checkpoint_path
        state = trainer.best_checkpoint
        print(f"best: {best.name}, step {state['step']}, w[0] = {state['w'][0]:.3f}")
        trainer.run(train, checkpoint=best)

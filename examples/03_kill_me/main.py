# SPDX-License-Identifier: Apache-2.0
"""03_kill_me - a worker dies in the middle of a run, and the run goes on.

Four ranks count to GOAL, one step every two milliseconds; rank 0's count is the checkpoint. In its
first life rank 1 kills itself at step KILL_AT. Nothing below asks for a revival: the run brings the
rank back by itself, and calls the function again with the newest checkpoint.
"""

import os
import signal
import time

from manta import sgd
from manta.sgd import SGDCallback, Trainer

GOAL, KILL_AT, WORKERS = 200, 100, 4


def count_up():
    state = sgd.load_checkpoint()
    count = state["count"] if state else 0
    entered = time.monotonic()  # one clock for all processes of this host
    while count < GOAL:
        if sgd.world_rank() == 1 and count == KILL_AT and not state:
            print(f"killed at {time.monotonic()}")  # in its log
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
        count += 1
        sgd.report(count=count, entered=entered)
        sgd.save_checkpoint(count=count)
    return count


class Watch(SGDCallback):
    newest = seen = 0
    back = 0.0

    def handle_result(self, results, iteration, rewound_to=None):
        if rewound_to is not None:  # the first rows after a revival
            self.back = max(row["entered"] for row in results)
            print(f"continuing from count {rewound_to} with {len(results)} ranks")
        if iteration > self.newest:  # else it is one that was seen before the rewind
            self.newest = iteration
            self.seen += 1


if __name__ == "__main__":
    watch = Watch()
    with Trainer(backend=None, num_workers=WORKERS, callbacks=[watch]) as trainer:
        counts = trainer.run(count_up)
        log = (trainer.latest_run_dir / "logs" / "rank-1.log").read_text()
    killed = float(log.split("killed at ")[1].split()[0])
    print(f"rank 1 killed itself at count {KILL_AT}")
    print(f"all {WORKERS} ranks were back in the loop {(watch.back - killed) * 1e3:.1f} ms after "
          f"the kill")
    print(f"final count {GOAL} on every rank: {'yes' if counts == [GOAL] * WORKERS else 'NO'}; "
          f"{watch.seen} of {GOAL} iterations seen")

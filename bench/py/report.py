# SPDX-License-Identifier: Apache-2.0
"""bench/py/report.py ROWS BATCHES - reports of 2 workers that reach a callback."""

import sys
import time
from typing import Any

from manta import sgd
from manta.sgd import SGDCallback, Trainer

BATCH = 1000


class Count(SGDCallback):
    rows = 0
    last_ns = 0

    def handle_result(self, results: list[dict[str, Any]], **info: Any) -> None:
        if len(results) != 2 or results[0]["i"] != self.rows or results[1]["i"] != self.rows:
            raise RuntimeError(f"row {self.rows}: {results}")
        self.rows += 1
        self.last_ns = time.monotonic_ns()


def flood(config: dict[str, int]) -> int:
    start = time.monotonic_ns()
    for i in range(config["rows"]):
        sgd.report(loss=0.5, i=i)
    return start


def cost(config: dict[str, int]) -> list[float]:
    """µs of a call, in batches with a pause between, so that none waits for the driver."""
    out = []
    for b in range(config["batches"]):
        start = time.perf_counter_ns()
        for i in range(b * BATCH, (b + 1) * BATCH):
            sgd.report(loss=0.5, i=i)
        out.append((time.perf_counter_ns() - start) / 1e3 / BATCH)
        time.sleep(0.1)
    return out


rows, batches = int(sys.argv[1]), int(sys.argv[2])
with Trainer(backend=None, num_workers=2) as trainer:
    for us in sum(trainer.run(cost, {"batches": batches}, callbacks=[Count()]), []):
        print("report_us", us)
    for _ in range(3):
        count = Count()
        start = min(trainer.run(flood, {"rows": rows}, callbacks=[count]))
        if count.rows != rows:
            sys.exit(f"{count.rows} of {rows} rows arrived")
        print("rows_per_s", rows / (count.last_ns - start) * 1e9)

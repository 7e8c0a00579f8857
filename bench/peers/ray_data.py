# SPDX-License-Identifier: Apache-2.0
"""ray_data.py DIR REPS BATCH [filter] - Ray Data: the CSV files of DIR as batches of torch, with a
lambda as a filter. Two CPUs. Prints mb_s, a line per pass."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import ray

where, reps, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
megabytes = sum(os.path.getsize(f) for f in where.iterdir()) / 1e6
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
for i in range(reps + 1):
    d = ray.data.read_csv(str(where))
    if sys.argv[4:] == ["filter"]:
        d = d.filter(lambda row: row["x0"] > 0)
    start, rows = time.perf_counter(), 0
    for made in d.iter_torch_batches(batch_size=batch):
        rows += len(made["x0"])
    if i:  # the first pass starts its workers
        print("mb_s", megabytes / (time.perf_counter() - start))
ray.shutdown()

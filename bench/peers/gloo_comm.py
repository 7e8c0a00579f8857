#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/peers/gloo_comm.py RANKS FROM TO FACTOR MS - gloo's all-reduce, measured as MPI's is.

Through torch.distributed, f32, sum, in place, one thread per rank. Prints what mpi_comm prints.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

WARM_UP, TRIAL, MIN_CALLS, MAX_CALLS = 2, 3, 5, 2000


def call_once(x: torch.Tensor, rank: int) -> float:
    x.fill_(rank + 1)
    dist.barrier()
    start = time.perf_counter_ns()
    dist.all_reduce(x)
    return (time.perf_counter_ns() - start) / 1e3


def measure(x: torch.Tensor, rank: int, ranks: int, ms: float) -> None:
    for _ in range(WARM_UP):
        call_once(x, rank)
    start = time.perf_counter_ns()
    for _ in range(TRIAL):
        call_once(x, rank)
    fit = ms * 1e6 * TRIAL / (time.perf_counter_ns() - start)
    calls = torch.tensor([min(MAX_CALLS, max(MIN_CALLS, int(fit)))])
    dist.broadcast(calls, 0)
    times = torch.tensor([call_once(x, rank) for _ in range(int(calls))], dtype=torch.float64)
    wrong = torch.count_nonzero(x != ranks * (ranks + 1) / 2)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    dist.all_reduce(wrong)
    if rank == 0:
        us = sorted(times.tolist())
        print(x.numel() * 4, len(us), f"{us[0]:.3f} {us[len(us) // 2]:.3f}",
              f"{us[(len(us) * 99 + 99) // 100 - 1]:.3f}", int(wrong), flush=True)


def work(rank: int, ranks: int, sizes: list[int], ms: float, meet: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=ranks)
    for size in sizes:
        measure(torch.zeros(size // 4), rank, ranks, ms)
    dist.destroy_process_group()


def main() -> int:
    ranks, size, to, factor, ms = (int(word) for word in sys.argv[1:])
    sizes = []
    while size <= to:
        sizes.append(size)
        size *= factor
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(work, (ranks, sizes, ms, f"{d}/meet"), nprocs=ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""batches.py WHAT DIR THREADS REPS [BATCH] - batches of torch of the CSV files of DIR; prints mb_s,
a line per pass: megabytes of the files, or of the tensors where those are ready.

csv, filter (of the half of the rows), cached (a second epoch), npy: by manta; read: the same files
to batches of columns, and nothing more; plain (DataLoader(TensorDataset)) and slices (a loop that
slices and clones) of ready tensors: by torch.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable

import torch

import manta.data
from manta.data import col


def files(where: Path, threads: int, batch: int, what: str) -> Iterable[Any]:
    d = manta.data.read_csv(where)
    if what == "read":
        return d.iter_batches(batch_size=65536, threads=threads)
    if what == "filter":
        d = d.filter(col("x0") > 0)
    return d.to_torch(batch_size=batch, threads=threads)


def tensors(where: Path) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = list(manta.data.read_csv(where).to_torch(batch_size=65536))
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def arrays(where: Path, threads: int, batch: int) -> Iterable[Any]:
    """x.npy and y.npy side by side."""
    import numpy
    x, y = tensors(where)
    numpy.save(where.parent / "x.npy", x.numpy())
    numpy.save(where.parent / "y.npy", y.numpy()[:, 0])
    d = manta.data.read_numpy(where.parent / "x.npy").rename_columns(["x"])
    return d.zip(manta.data.read_numpy(where.parent / "y.npy").rename_columns(["y"])).to_torch(
        batch_size=batch, threads=threads)


def slices(x: torch.Tensor, y: torch.Tensor, batch: int) -> Iterable[Any]:
    for at in range(0, len(x), batch):
        yield x[at:at + batch].clone(), y[at:at + batch].clone()


def passes(what: str, where: Path, threads: int, batch: int) -> Callable[[], Iterable[Any]]:
    if what in ("plain", "slices"):
        torch.set_num_threads(1)
        x, y = tensors(where)
        if what == "slices":
            return lambda: slices(x, y, batch)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch)
        return lambda: loader
    if what not in ("cached", "npy"):
        return lambda: files(where, threads, batch, what)
    made = arrays(where, threads, batch) if what == "npy" else files(where, threads, batch, what)
    return lambda: made


def read_only(made: Any) -> int:
    """Of batches of columns, without making anything of them."""
    loader = made._get()
    rows = 0
    while (b := loader.next()) is not None:
        rows += b.rows()
    return rows


def main() -> int:
    what, where, threads, reps = (sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]),
                                  int(sys.argv[4]))
    batch = int(sys.argv[5]) if len(sys.argv) > 5 else 1024
    once = passes(what, where, threads, batch)
    megabytes = sum(os.path.getsize(f) for f in where.iterdir()) / 1e6
    for i in range(reps + 1):
        rows, width, start, used = 0, 0, time.perf_counter(), time.process_time()
        made = once()  # until the last batch was given, not until it is freed
        if what == "read":
            rows = read_only(made)
        else:
            for x, y in made:
                rows += len(x)
        took, used = time.perf_counter() - start, time.process_time() - used
        if what != "read":
            width = x[0].nbytes + y[0].nbytes
        del made
        if what in ("cached", "npy", "plain", "slices"):
            megabytes = rows * width / 1e6
        if i:  # the first one loads what is lazy
            print("mb_s", megabytes / took)
            print("cpu_mb_s", megabytes / used)
    return 0


if __name__ == "__main__":
    sys.exit(main())

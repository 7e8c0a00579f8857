# SPDX-License-Identifier: Apache-2.0
"""csv_columns.py PEER DIR THREADS REPS - prints csv_mb_s, a line per pass over all files of DIR.

Each library as it comes, with as many threads as it is told; pandas has none, so its files are read
by a pool of threads. What is made of the files is what the library makes of them by itself: pandas
a frame, the others their columns.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable


def pandas_reader(files: list[str], threads: int) -> Callable[[], int]:
    import pandas
    pool = ThreadPoolExecutor(threads)
    return lambda: sum(pool.map(lambda f: len(pandas.read_csv(f)), files))


def polars_reader(files: list[str], threads: int) -> Callable[[], int]:
    os.environ["POLARS_MAX_THREADS"] = str(threads)  # read when it is imported
    import polars
    return lambda: polars.read_csv(files).height


def pyarrow_reader(files: list[str], threads: int) -> Callable[[], int]:
    import pyarrow
    import pyarrow.csv
    pyarrow.set_cpu_count(threads)
    options = pyarrow.csv.ReadOptions(use_threads=threads > 1)
    return lambda: sum(pyarrow.csv.read_csv(f, read_options=options).num_rows for f in files)


def duckdb_reader(files: list[str], threads: int) -> Callable[[], int]:
    import duckdb
    connection = duckdb.connect(config={"threads": threads})
    return lambda: connection.read_csv(files).to_arrow_table().num_rows


READERS = {"pandas": pandas_reader, "polars": polars_reader, "pyarrow": pyarrow_reader,
           "duckdb": duckdb_reader}


def main() -> int:
    name, where, threads, reps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    files = sorted(str(p) for p in where.iterdir())
    megabytes = sum(os.path.getsize(f) for f in files) / 1e6
    read = READERS[name](files, threads)
    rows = read()  # the files are in memory now, and what is lazy is loaded
    for _ in range(reps):
        start = time.perf_counter()
        if read() != rows:
            sys.exit("it reads other rows every time")
        print("csv_mb_s", megabytes / (time.perf_counter() - start))
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The same jobs in other systems. Each is used if it is there, and left out if it is not."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build" / "peers"
LIMIT_S = 120


class PeerFailed(Exception):
    """It is there, and did not do its job."""


def mpi_program() -> Path | None:
    """build/peers/mpi_init, compiled if need be; None without OpenMPI."""
    source, program = HERE / "mpi_init.c", BUILT / "mpi_init"
    if not shutil.which("mpirun"):
        return None
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    if not shutil.which("mpicc"):
        return None
    BUILT.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mpicc", "-O2", "-o", str(program), str(source)], text=True,
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise PeerFailed(f"mpicc: {done.stderr.strip()}")
    return program


def mpi_init_ms(program: Path, ranks: int) -> float:
    """From before the exec of mpirun until the last rank is through MPI_Init."""
    start_ns = time.monotonic_ns()  # CLOCK_MONOTONIC, as the program's
    try:
        done = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                               str(ranks), str(program)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT_S)
    except subprocess.TimeoutExpired as e:
        raise PeerFailed(str(e)) from e
    times = [int(word) for word in done.stdout.split()]
    if done.returncode != 0 or len(times) != ranks:
        raise PeerFailed(f"mpirun: exit status {done.returncode}: {done.stderr.strip()}")
    return (max(times) - start_ns) / 1e6

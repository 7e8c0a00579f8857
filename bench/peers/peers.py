# SPDX-License-Identifier: Apache-2.0
"""The same jobs in other systems. Each is used if it is there, and left out if it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import netns

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build" / "peers"
LIMIT_S = 600
RAY = "ray[train]==2.60.*"
OPTUNA = ["optuna==5.0.*", "cmaes", "scipy"]
DATA = ["pandas", "polars", "pyarrow", "duckdb"]
MPIRUN = ["mpirun", "--allow-run-as-root"]


class PeerFailed(Exception):
    """It is there, and did not do its job."""


def mpi_program(name: str = "mpi_init") -> Path | None:
    """build/peers/NAME, compiled if need be; None without OpenMPI."""
    source, program = HERE / f"{name}.c", BUILT / name
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


def run(command: list[object], env: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                              env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired as e:
        raise PeerFailed(str(e)) from e
    if done.returncode != 0:
        raise PeerFailed(f"{words[0]}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def mpi_init_ms(program: Path, ranks: int) -> float:
    """From before the exec of mpirun until the last rank is through MPI_Init."""
    start_ns = time.monotonic_ns()  # CLOCK_MONOTONIC, as the program's
    said = run([*MPIRUN, "--oversubscribe", "-np", ranks, program])
    times = [int(word) for word in said.split()]
    if len(times) != ranks:
        raise PeerFailed(f"mpirun: {len(times)} of {ranks} ranks spoke")
    return (max(times) - start_ns) / 1e6


def sweep(text: str) -> dict[int, float]:
    """Lines BYTES CALLS MIN P50 P99 WRONG, as {bytes: p50}."""
    out = {}
    for line in text.splitlines():
        words = line.split()
        if int(words[5]):
            raise PeerFailed(f"wrong values: {line}")
        out[int(words[0])] = float(words[3])
    return out


def mpi_comm(op: str, ranks: int, low: int, high: int, factor: int, ms: int,
             oversubscribe: bool) -> dict[int, float] | None:
    """A collective by OpenMPI as it comes: each rank bound to a core. With more ranks than cores
    they are not, and yield when idle. None without OpenMPI."""
    program = mpi_program("mpi_comm")
    if not program:
        return None
    more = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if oversubscribe else []
    return sweep(run([*MPIRUN, *more, "-np", ranks, program, op, low, high, factor, ms]))


def torch_python() -> Path | None:
    """A Python that has torch: that of the tests, or one that `make bench-peers` makes."""
    for home, stamp in ((BUILT.parent / "pyenv", ".pins"), (BUILT / "torch", "ready")):
        if (home / stamp).exists():
            return home / "bin" / "python"
    return None


def make_torch() -> None:
    """Once; PyPI has no smaller build of it than the one for CUDA."""
    if torch_python():
        return
    run([sys.executable, "-m", "venv", "--clear", BUILT / "torch"])
    run([BUILT / "torch" / "bin" / "pip", "install", "--quiet", "--no-input", "torch", "numpy"])
    (BUILT / "torch" / "ready").touch()


def ray_python() -> Path | None:
    """A Python that has Ray Train, and the other's torch: `make bench-peers` makes it."""
    home = BUILT / "ray"
    return home / "bin" / "python" if (home / "ready").exists() and torch_python() else None


def make_ray() -> None:
    """Once. It has no torch of its own, so that all train with the same."""
    torch, home = torch_python(), BUILT / "ray"
    if ray_python() or not torch:
        return
    run([torch, "-m", "venv", "--clear", home])
    run([home / "bin" / "pip", "install", "--quiet", "--no-input", RAY])
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    Path(run([home / "bin" / "python", "-c", where]).strip(), "torch.pth").write_text(
        run([torch, "-c", where]))
    run([home / "bin" / "python", "-c", "import ray.train.torch"])
    (home / "ready").touch()


def data_python() -> Path | None:
    """A Python that has pandas, Polars, pyarrow and DuckDB: `make bench-peers` makes it."""
    home = BUILT / "data"
    return home / "bin" / "python" if (home / "ready").exists() else None


def make_data() -> None:
    """Once."""
    home = BUILT / "data"
    if data_python():
        return
    run([sys.executable, "-m", "venv", "--clear", home])
    run([home / "bin" / "pip", "install", "--quiet", "--no-input", *DATA])
    (home / "ready").touch()


def optuna_python() -> Path | None:
    """A Python that has Optuna and what its samplers but the Gaussian process need: `make
    bench-peers` makes it."""
    home = BUILT / "optuna"
    return home / "bin" / "python" if (home / "ready").exists() else None


def make_optuna() -> None:
    """Once."""
    home = BUILT / "optuna"
    if optuna_python():
        return
    run([sys.executable, "-m", "venv", "--clear", home])
    run([home / "bin" / "pip", "install", "--quiet", "--no-input", *OPTUNA])
    (home / "ready").touch()


def optuna_per_s(trials: int) -> list[float]:
    """Suggestions of Optuna's TPE; nothing without it."""
    python = optuna_python()
    if not python:
        return []
    said = run([python, HERE / "optuna_search.py", "--speed", "--trials", trials])
    return [float(said.split()[1])]


def ray_asha(table: Path, orders: int, workers: int, grace: int,
             factor: int) -> dict[str, list[float]]:
    """What ray_asha.py says of its replays; empty without Ray."""
    out: dict[str, list[float]] = {"found": [], "spent": [], "stopped": []}
    python = ray_python()
    if python:
        said = run([python, HERE / "ray_asha.py", table, orders, workers, grace, factor])
        for name, value in (line.split() for line in said.splitlines()):
            out[name].append(float(value))
    return out


def csv_mb_s(name: str, where: Path, threads: int, reps: int) -> list[float]:
    """Passes over the files of a folder by one of them."""
    said = run([data_python(), HERE / "csv_columns.py", name, where, threads, reps])
    return [float(line.split()[1]) for line in said.splitlines()]


def gloo_comm(ranks: int, low: int, high: int, factor: int, ms: int) -> dict[int, float] | None:
    """All-reduce by gloo through torch.distributed; None without torch."""
    python = torch_python()
    if not python:
        return None
    return sweep(run([python, HERE / "gloo_comm.py", ranks, low, high, factor, ms]))


def mpi_net_ms(program: Path, hosts: netns.TwoHosts, size: int, calls: int) -> list[float]:
    """An all-reduce between two namespaces over TCP. Ranks yield: with one processor for a rank and
    the kernel's half of its messages, those that do not are slower."""
    command = ["ip", "netns", "exec", hosts.names[0], "unshare", "-u", "sh", "-c",
               'hostname "$0" && exec "$@"', hosts.names[0],
               "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(HERE / "netns-agent"),
               "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
               "--mca", "btl_tcp_if_include", hosts.net, "--mca", "oob_tcp_if_include", hosts.net,
               "--mca", "mpi_yield_when_idle", "1",
               "--host", ",".join(hosts.names), "-np", "2", str(program), str(size), str(calls)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as e:
        raise PeerFailed(str(e)) from e
    if done.returncode != 0:
        raise PeerFailed(f"mpirun: exit status {done.returncode}: {done.stderr.strip()}")
    return [float(word) for word in done.stdout.split()]


PROGRAMS = {"PYTHONPATH": str(HERE.parent / "py"), "PYTHONDONTWRITEBYTECODE": "1"}


def torchrun(job: str, kills: int = 0) -> list[float] | None:
    """Milliseconds until both ranks have met, or from each kill until both train again; None
    without torch."""
    python = torch_python()
    if not python:
        return None
    with tempfile.TemporaryDirectory() as d:
        start_ns = time.monotonic_ns()
        run([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2,
             "--max-restarts", 3 * kills, HERE / "torchrun_train.py", job, d, kills], PROGRAMS)
        if job == "start":
            notes = [int(p.read_text()) for p in Path(d).glob("line-*")]
            return [(max(notes) - start_ns) / 1e6]
        return recovery_times(d, kills)


def recovery_times(where: str, kills: int) -> list[float]:
    sys.path.insert(0, PROGRAMS["PYTHONPATH"])
    try:
        import recovery
    finally:
        del sys.path[0]
    return recovery.times(where, kills)


def ray_data_mb_s(where: Path, reps: int, batch: int, *words: str) -> list[float] | None:
    """Passes over the files of a folder by Ray Data; None without it."""
    python = ray_python()
    if not python:
        return None
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as d:
        said = run([python, HERE / "ray_data.py", where, reps, batch, *words],
                   {"RAY_TMPDIR": d, "RAY_USAGE_STATS_ENABLED": "0"})
    return [float(line.split()[1]) for line in said.splitlines() if line.startswith("mb_s ")]


def ray_tune_per_s(trials: int) -> list[float] | None:
    """Trials/s of Ray Tune; None without it."""
    python = ray_python()
    if not python:
        return None
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as d:
        said = run([python, HERE / "ray_tune.py", trials, d],
                   {"RAY_TMPDIR": d, "RAY_USAGE_STATS_ENABLED": "0"})
    return [float(line.split()[1]) for line in said.splitlines()
            if line.startswith("trials_per_s ")]


def ray(job: str, n: int = 1, env: dict[str, str] | None = None) -> dict[str, list[float]] | None:
    """What ray_train.py says of a job; None without Ray. The directory has a short name: there will
    be sockets in it."""
    python = ray_python()
    if not python:
        return None
    out: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as d:
        said = run([python, HERE / "ray_train.py", job, time.monotonic_ns(), d, n],
                   {**PROGRAMS, "RAY_TMPDIR": d, "RAY_USAGE_STATS_ENABLED": "0", **(env or {})})
    for name, value in (line.split() for line in said.splitlines() if len(line.split()) == 2):
        out.setdefault(name, []).append(float(value))
    return out

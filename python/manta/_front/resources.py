# SPDX-License-Identifier: Apache-2.0
"""What a trainer asks for: how many workers, and what each of them reserves."""

from __future__ import annotations

import math
import os
from typing import Any

from manta import _manta

MAX_WORKERS = 4096


def worker_range(n: Any) -> tuple[int, int]:
    """(workers, least workers) as libmanta wants them; (0, 0): its default."""
    if n is None:
        return 0, 0
    if isinstance(n, (tuple, list)):
        return _elastic(n)
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"num_workers must be an int or (min, max), not {n!r}")
    if not 1 <= n <= MAX_WORKERS:
        raise ValueError(f"num_workers must be 1 to {MAX_WORKERS}, not {n}")
    return n, 0


def _elastic(pair: Any) -> tuple[int, int]:
    if len(pair) != 2:
        raise ValueError(f"num_workers must be an int or (min, max), not {pair!r}")
    least, most = pair
    if isinstance(least, bool) or not isinstance(least, int):
        raise TypeError(f"the minimum of num_workers must be an int, not {least!r}")
    if most == math.inf:
        most = max(least, cpus_here())
    if isinstance(most, bool) or not isinstance(most, int):
        raise TypeError(f"the maximum of num_workers must be an int or infinity, not {most!r}")
    if not 1 <= least <= most <= MAX_WORKERS:
        raise ValueError(f"num_workers must be (min, max) with 1 <= min <= max <= {MAX_WORKERS}, "
                         f"not {tuple(pair)!r}")
    return most, least


def cpus_here() -> int:
    declared = _manta.knob("MANTA_NUM_CPUS")
    return len(os.sched_getaffinity(0)) if declared is None else int(declared)


def _one_figure(what: str, given: dict[str, float | None]) -> float:
    """The one figure that was given under several names; 0 if none was."""
    said = {name: value for name, value in given.items() if value is not None}
    if len(set(said.values())) > 1:
        words = " and ".join(f"{name}={value}" for name, value in said.items())
        raise ValueError(f"{words} contradict each other: both say how many {what} a worker has")
    for name, value in said.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ValueError(f"{name} must be a number >= 0, not {value!r}")
    return float(next(iter(said.values()), 0))


def _check_kinds(use_gpu: Any, resources: Any) -> None:
    if use_gpu is not None and not isinstance(use_gpu, bool):
        raise TypeError(f"use_gpu must be True or False, not {use_gpu!r}")
    if resources is not None and not isinstance(resources, dict):
        raise TypeError(f"resources_per_worker must be a dict such as {{'CPU': 2}}, not "
                        f"{resources!r}")
    for name in resources or {}:
        if not isinstance(name, str) or (name not in ("CPU", "GPU") and name.upper() in (
                "CPU", "CPUS", "GPU", "GPUS")):
            right = "CPU" if str(name).upper().startswith("C") else "GPU"
            raise ValueError(f"resources_per_worker has no {name!r}\nhint: it is {right!r}")


def per_worker(use_gpu: bool | None, cpus: Any, gpus: Any, gpu: Any,
               resources: dict[str, Any] | None) -> dict[str, Any]:
    """The figures of libmanta's config."""
    _check_kinds(use_gpu, resources)
    rest = dict(resources or {})
    out: dict[str, Any] = {
        "cpus_per_worker": _one_figure("CPUs", {
            "cpus_per_worker": cpus, "resources_per_worker['CPU']": rest.pop("CPU", None)}),
        "gpus_per_worker": _one_figure("GPUs", {
            "gpus_per_worker": gpus, "gpu_per_worker": gpu,
            "resources_per_worker['GPU']": rest.pop("GPU", None)}),
    }
    n = out["gpus_per_worker"]
    said_none = 0 in (gpus, gpu) or (resources or {}).get("GPU") == 0
    if use_gpu and said_none:
        raise ValueError("use_gpu=True and a worker with 0 GPUs contradict each other")
    if use_gpu is False and n > 0:
        raise ValueError(f"use_gpu=False and a worker with {n:g} GPUs contradict each other\n"
                         f"hint: use_gpu=True, or leave it out")
    if n > 1 and n != int(n):
        raise ValueError(f"GPUs per worker must be a fraction below 1 or a whole number, not {n:g}")
    if use_gpu and n == 0:
        out["gpus_per_worker"] = 1.0
    if rest:
        for name, value in rest.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"resources_per_worker[{name!r}] must be a number, not {value!r}")
        out["resources"] = rest
    return out


def shares(figures: dict[str, Any]) -> dict[str, float]:
    """What a worker with these figures takes, by the names of resources_per_worker."""
    return {"CPU": figures["cpus_per_worker"] or 1.0, "GPU": figures["gpus_per_worker"],
            **figures.get("resources", {})}

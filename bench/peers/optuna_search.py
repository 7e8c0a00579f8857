#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Optuna's samplers find on the functions of bench/search.c: the best value of so many trials,
by seed.

  optuna_search.py --sampler tpe|cmaes|gp|random [--functions a,b] [--seeds 0:30] [--trials 200]
                   [--jobs N] [--limit-s S] --out PART.jsonl
      appends a line for each study; those that the file has already are not run again, so that it
      can be stopped at any moment, and run in parts
  optuna_search.py --merge PART.jsonl... --out optuna.json
      the quartiles over the seeds; optuna.json beside this file is what bench/run compares with
  optuna_search.py --speed [--trials 1000]
      suggestions/s of the TPE with 10 parameters, over the last 100 of so many trials
"""

from __future__ import annotations

import os

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"  # before anything that reads them is imported

import argparse
import json
import multiprocessing
import statistics
import time
import warnings
from math import cos, e, exp, log, log2, log10, pi, sin, sqrt
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Sequence

Point = Sequence[float]


def branin(x: Point) -> float:
    u, v, b = x[0] * 15 - 5, x[1] * 15, 5.1 / (4 * pi * pi)
    return (v - b * u * u + 5 / pi * u - 6) ** 2 + 10 * (1 - 1 / (8 * pi)) * cos(u) + 10


def rosenbrock10(x: Point) -> float:
    y = [a * 4 - 2 for a in x]
    return sum(100 * (y[i + 1] - y[i] ** 2) ** 2 + (1 - y[i]) ** 2 for i in range(9))


def ackley5(x: Point) -> float:
    y = [a * 60 - 27 for a in x]
    return (-20 * exp(-0.2 * sqrt(sum(u * u for u in y) / 5))
            - exp(sum(cos(2 * pi * u) for u in y) / 5) + 20 + e)


def rastrigin5(x: Point) -> float:
    return 50 + sum(u * u - 10 * cos(2 * pi * u) for u in (a * 10.24 - 3.82 for a in x))


def sphere5(x: Point) -> float:
    return sum((a * 10 - 3.9) ** 2 for a in x)


A = [[10, 3, 17, 3.5, 1.7, 8], [.05, 10, 17, .1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
     [17, 8, .05, 10, .1, 14]]
P = [[.1312, .1696, .5569, .0124, .8283, .5886], [.2329, .4135, .8307, .3736, .1004, .9991],
     [.2348, .1451, .3522, .2883, .3047, .6650], [.4047, .8828, .8732, .5743, .1091, .0381]]


def hartmann6(x: Point) -> float:
    return -sum(w * exp(-sum(a * (v - p) ** 2 for a, v, p in zip(row, x, at)))
                for w, row, at in zip([1, 1.2, 3, 3.2], A, P))


def griewank5(x: Point) -> float:
    y = [a * 200 - 87 for a in x]
    waves = 1.0
    for i, u in enumerate(y):
        waves *= cos(u / sqrt(i + 1))
    return 1 + sum(u * u for u in y) / 4000 - waves


def levy4(x: Point) -> float:
    w = [1 + (a * 20 - 11) / 4 for a in x]
    return (sin(pi * w[0]) ** 2 + (w[3] - 1) ** 2 * (1 + sin(2 * pi * w[3]) ** 2)
            + sum((v - 1) ** 2 * (1 + 10 * sin(pi * v + 1) ** 2) for v in w[:3]))


def styblinski5(x: Point) -> float:
    return sum((u ** 4 - 16 * u * u + 5 * u) / 2 for u in (a * 10 - 5 for a in x))


def goldstein(v: Point) -> float:
    x, y = v[0] * 4 - 2, v[1] * 4 - 2
    a = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x * x - 14 * y + 6 * x * y + 3 * y * y)
    b = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x * x + 48 * y - 36 * x * y + 27 * y * y)
    return log(a * b)


def conditional(x: Point) -> float:
    """An option, and two numbers that count under it."""
    if x[0] == 0:
        return 0.3 + (x[1] - 0.2) ** 2 + (x[2] - 0.7) ** 2
    return (x[1] - 0.6) ** 2 + 2 * (x[2] - 0.3) ** 2


def mixed(x: Point) -> float:
    """What a training may look like: optimizer, learning rate, layers, width, dropout."""
    option, rate, layers, width, dropout = x
    return ([0.25, 0, 0.5][int(option)] + 0.3 * (log10(rate) + [1.5, 3, 2][int(option)]) ** 2
            + ((layers - 7) / 6) ** 2 + (log2(width) - 6.5) ** 2 / 8 + 2 * (dropout - 0.3) ** 2)


def mix(x: int) -> int:
    """manta__rng_mix."""
    m = (1 << 64) - 1
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & m
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & m
    return x ^ x >> 31


def noisy(x: Point) -> float:
    bits = 0
    for a in x:
        bits = mix(bits ^ int(a * 1e9))
    return sphere5(x) + 0.5 * ((bits >> 11) / 9007199254740992 - 0.5)


class Function(NamedTuple):
    suggest: Callable[[Any], list[float]]
    value: Callable[[Point], float]


def unit(dims: int) -> Callable[[Any], list[float]]:
    return lambda t: [t.suggest_float(f"x{i}", 0, 1) for i in range(dims)]


def suggest_conditional(t: Any) -> list[float]:
    kind = t.suggest_categorical("kind", [0, 1])
    return [kind, *(t.suggest_float(name, 0, 1) for name in (("a", "b"), ("c", "d"))[kind])]


def suggest_mixed(t: Any) -> list[float]:
    return [t.suggest_categorical("option", [0, 1, 2]),
            t.suggest_float("rate", 1e-5, 1, log=True), t.suggest_int("layers", 1, 20),
            t.suggest_int("width", 1, 512, log=True), t.suggest_float("dropout", 0, 0.8)]


FUNCTIONS = {
    "branin": Function(unit(2), branin), "hartmann6": Function(unit(6), hartmann6),
    "rosenbrock10": Function(unit(10), rosenbrock10), "ackley5": Function(unit(5), ackley5),
    "rastrigin5": Function(unit(5), rastrigin5), "sphere5": Function(unit(5), sphere5),
    "griewank5": Function(unit(5), griewank5), "levy4": Function(unit(4), levy4),
    "styblinski5": Function(unit(5), styblinski5), "goldstein": Function(unit(2), goldstein),
    "conditional": Function(suggest_conditional, conditional),
    "mixed": Function(suggest_mixed, mixed), "noisy": Function(unit(5), noisy)}


# --- studies --------------------------------------------------------------------------------------


class Study(NamedTuple):
    sampler: str
    function: str
    seed: int
    trials: int
    ends: float  # time.monotonic(), when it has to give up


def quiet_optuna() -> Any:
    warnings.filterwarnings("ignore")
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "tpe": ("TPESampler", {"multivariate": True, "constant_liar": True}),
    "cmaes": ("CmaEsSampler", {}), "gp": ("GPSampler", {}), "random": ("RandomSampler", {})}


def sampler(optuna: Any, name: str, seed: int) -> Any:
    made, settings = SAMPLERS[name]
    return getattr(optuna.samplers, made)(seed=seed, **settings)


def run(s: Study) -> dict[str, Any] | None:
    """None: its time was up before it had ended."""
    optuna = quiet_optuna()
    if s.sampler == "gp":
        import torch
        torch.set_num_threads(1)
    f = FUNCTIONS[s.function]
    study = optuna.create_study(sampler=sampler(optuna, s.sampler, s.seed))
    began, done = time.monotonic(), 0
    while done < s.trials and time.monotonic() < s.ends:
        study.optimize(lambda t: f.value(f.suggest(t)), n_trials=1)
        done += 1
    if done < s.trials:
        return None
    return {"sampler": s.sampler, "function": s.function, "seed": s.seed, "trials": s.trials,
            "best": float(study.best_value), "s": round(time.monotonic() - began, 2),
            "optuna": optuna.__version__}


def lines(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        yield from (json.loads(line) for line in path.read_text().splitlines())


def run_all(a: argparse.Namespace) -> None:
    first, end = map(int, a.seeds.split(":"))
    had = {(x["sampler"], x["function"], x["seed"], x["trials"])
           for x in lines([a.out] if a.out.exists() else [])}
    ends = time.monotonic() + a.limit_s
    left = [Study(a.sampler, name, seed, a.trials, ends) for seed in range(first, end)
            for name in a.functions.split(",") if (a.sampler, name, seed, a.trials) not in had]
    with multiprocessing.get_context("spawn").Pool(a.jobs) as pool, a.out.open("a") as out:
        for found in pool.imap_unordered(run, left):
            if found:
                print(json.dumps(found), file=out, flush=True)


def merge(parts: list[Path], out: Path) -> None:
    by: dict[tuple[str, str], dict[int, float]] = {}
    told: dict[str, Any] = {"script": "bench/peers/optuna_search.py", "samplers": SAMPLERS}
    for x in lines(parts):
        by.setdefault((x["sampler"], x["function"]), {})[x["seed"]] = x["best"]
        told |= {"optuna": x["optuna"], "trials": x["trials"]}
    rows = []
    for (name, function), best in sorted(by.items()):
        quartiles = statistics.quantiles(best.values(), n=4, method="inclusive")
        rows.append(json.dumps({"sampler": name, "function": function, "seeds": len(best),
                                "quartiles": [float(f"{q:.6g}") for q in quartiles]}))
    out.write_text(json.dumps(told)[:-1] + ', "found": [\n ' + ",\n ".join(rows) + "\n]}\n")


def speed(trials: int) -> None:
    """Of the sampler alone, as ours is measured: the bowl costs nothing."""
    optuna = quiet_optuna()
    study = optuna.create_study(sampler=sampler(optuna, "tpe", 1))
    spent = 0.0
    for i in range(trials):
        began = time.monotonic()
        t = study.ask()
        x = unit(10)(t)
        spent += time.monotonic() - began if i >= trials - 100 else 0
        study.tell(t, sum((a - 0.4) ** 2 for a in x))
    print("suggestions_per_s", min(100, trials) / spent)


def main() -> None:
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--sampler", choices=SAMPLERS, default="tpe")
    p.add_argument("--functions", default=",".join(FUNCTIONS))
    p.add_argument("--seeds", default="0:30")
    p.add_argument("--trials", type=int)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--limit-s", type=float, default=float("inf"))
    p.add_argument("--merge", nargs="+", type=Path)
    p.add_argument("--speed", action="store_true")
    p.add_argument("--out", type=Path, default=Path(__file__).with_name("optuna.json"))
    a = p.parse_args()
    if a.speed:
        speed(a.trials or 1000)
    elif a.merge:
        merge(a.merge, a.out)
    else:
        a.trials = a.trials or 200
        run_all(a)


if __name__ == "__main__":
    main()

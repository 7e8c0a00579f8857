#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""optuna_search.py [--trials 200] [--seeds 30] [--kinds tpe,cmaes,gp] [--into FILE] - what Optuna's
samplers find on the functions of bench/search.c: the best value of each seed, sorted, as JSON with
the version. optuna.json beside this file is what `bench/run` compares with; functions that it has
already are not computed again, so it can be made in parts.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from math import cos, e, exp, log, pi, sin, sqrt
from pathlib import Path
from typing import Any, Callable, Sequence

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
    if x[0] < 0.5:
        return 0.3 + (x[1] - 0.2) ** 2 + (x[2] - 0.7) ** 2
    return (x[3] - 0.6) ** 2 + 2 * (x[4] - 0.3) ** 2


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


FUNCTIONS: dict[str, tuple[int, Callable[[Point], float]]] = {
    "branin": (2, branin), "hartmann6": (6, hartmann6), "rosenbrock10": (10, rosenbrock10),
    "ackley5": (5, ackley5), "rastrigin5": (5, rastrigin5), "sphere5": (5, sphere5),
    "levy4": (4, levy4), "styblinski5": (5, styblinski5), "goldstein": (2, goldstein),
    "conditional": (5, conditional), "noisy": (5, noisy)}


def sampler(optuna: Any, kind: str, seed: int) -> Any:
    if kind == "tpe":
        return optuna.samplers.TPESampler(multivariate=True, seed=seed)
    return (optuna.samplers.CmaEsSampler if kind == "cmaes" else optuna.samplers.GPSampler)(
        seed=seed)


def best(optuna: Any, kind: str, name: str, seed: int, trials: int) -> float:
    dims, f = FUNCTIONS[name]
    study = optuna.create_study(sampler=sampler(optuna, kind, seed))
    study.optimize(lambda t: f([t.suggest_float(f"x{i}", 0, 1) for i in range(dims)]),
                   n_trials=trials)
    return float(study.best_value)


def main() -> None:
    warnings.filterwarnings("ignore")
    import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--trials", type=int, default=200)
    p.add_argument("--seeds", type=int, default=30)
    p.add_argument("--kinds", default="tpe,cmaes,gp")
    p.add_argument("--into", type=Path, default=Path(__file__).with_name("optuna.json"))
    a = p.parse_args()
    told: dict[str, Any] = json.loads(a.into.read_text()) if a.into.exists() else {}
    told |= {"optuna": optuna.__version__, "trials": a.trials, "seeds": a.seeds}
    for kind in a.kinds.split(","):
        found = told.setdefault(kind, {})
        for name in FUNCTIONS:
            if len(found.get(name, [])) == a.seeds:
                continue
            values = sorted(best(optuna, kind, name, s, a.trials) for s in range(a.seeds))
            assert all(math.isfinite(v) for v in values)
            found[name] = [float(f"{v:.6g}") for v in values]
            a.into.write_text(json.dumps(told, indent=1).replace(",\n   ", ", ") + "\n")


main()

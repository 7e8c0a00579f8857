# SPDX-License-Identifier: Apache-2.0
"""ray_asha.py TABLE ORDERS WORKERS GRACE FACTOR - bench/asha.c with the decisions of Ray's
ASHAScheduler: the same trials in the same orders. A line NAME VALUE for each sample.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from optuna_search import mix

MOST_CURVES = 4096


def shuffled(order: int, n: int) -> list[int]:
    of = list(range(n))
    for i in range(n - 1, 0, -1):
        k = mix(order * MOST_CURVES + i) % (i + 1)
        of[i], of[k] = of[k], of[i]
    return of


class Seat:
    def __init__(self, number: int, curve: list[int]):
        self.trial, self.curve, self.at = SimpleNamespace(trial_id=str(number)), curve, 0

    def report(self, asha: ASHAScheduler) -> tuple[int, bool]:
        """The next error, and whether it goes on."""
        value = self.curve[self.at]
        self.at += 1
        row = {"t": self.at, "e": value}
        goes_on = asha.on_trial_result(None, self.trial, row) != TrialScheduler.STOP
        if not goes_on or self.at == len(self.curve):
            asha.on_trial_complete(None, self.trial, row)
            return value, False
        return value, True


def replay(curves: list[list[int]], order: int, workers: int, grace: int, factor: int) -> None:
    asha = ASHAScheduler(time_attr="t", metric="e", mode="min", max_t=len(curves[0]),
                         grace_period=grace, reduction_factor=factor)
    least, spent, found, stopped = min(map(min, curves)), 0, 0, 0
    of = shuffled(order, len(curves))
    seats: list[Seat | None] = [None] * workers
    begun, live = 0, True
    while live:
        live = False
        for i in range(workers):
            if seats[i] is None and begun < len(of):
                seats[i] = seat = Seat(begun, curves[of[begun]])
                asha.on_trial_add(None, seat.trial)
                begun += 1
            seat = seats[i]
            if seat is None:
                continue
            live = True
            value, goes_on = seat.report(asha)
            spent += 1
            found = found or (spent if value <= least else 0)
            stopped += not goes_on and seat.at < len(seat.curve)
            seats[i] = seat if goes_on else None
    print("found", found or spent)
    print("spent", spent)
    print("stopped", stopped)


def main() -> None:
    lines = Path(sys.argv[1]).read_text().split()
    curves = [[int(line[i:i + 3]) for i in range(0, len(line), 3)] for line in lines]
    orders, workers, grace, factor = map(int, sys.argv[2:])
    for order in range(orders):
        replay(curves, order, workers, grace, factor)


main()

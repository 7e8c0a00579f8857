#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/curves.py [OUT] - makes bench/curves.txt: 1,000 learning curves of real trainings.

A network with one hidden layer learns by gradient descent which of three classes a point of eight
coordinates belongs to; a larger network, drawn at random, has named them, and a twentieth of the
names are wrong. Each line is one choice of learning rate, momentum, batch size, width, weight decay
and scale of the first weights, drawn from a seed: the errors on 1,000 other points after each of
27 epochs over 600 points, in parts of a thousand, three digits each. It needs numpy, and takes
minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

CURVES, EPOCHS, TRAINED, JUDGED, INPUTS, CLASSES = 1000, 27, 600, 1000, 8, 3


def points(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((TRAINED + JUDGED, INPUTS))
    hidden = np.tanh(x @ rng.standard_normal((INPUTS, 24)))
    names = (hidden @ rng.standard_normal((24, CLASSES))).argmax(1)
    wrong = rng.random(len(x)) < 0.05
    return x, np.where(wrong, rng.integers(0, CLASSES, len(x)), names)


class Net:
    def __init__(self, rng: np.random.Generator, width: int, scale: float):
        self.w = [scale * rng.standard_normal((INPUTS + 1, width)) / 3,
                  scale * rng.standard_normal((width + 1, CLASSES)) / width ** 0.5]
        self.moved = [np.zeros_like(w) for w in self.w]

    def scores(self, x: np.ndarray) -> np.ndarray:
        self.x = np.hstack([x, np.ones((len(x), 1))])
        self.h = np.hstack([np.maximum(self.x @ self.w[0], 0), np.ones((len(x), 1))])
        return self.h @ self.w[1]

    def step(self, x: np.ndarray, y: np.ndarray, rate: float, momentum: float,
             decay: float) -> None:
        scores = self.scores(x)
        odds = np.exp(scores - scores.max(1, keepdims=True))
        off = odds / odds.sum(1, keepdims=True)
        off[np.arange(len(y)), y] -= 1
        back = (off @ self.w[1][:-1].T) * (self.h[:, :-1] > 0)
        for i, slope in enumerate((self.x.T @ back, self.h.T @ off)):
            self.moved[i] = momentum * self.moved[i] - rate * (slope / len(y) + decay * self.w[i])
            self.w[i] = self.w[i] + self.moved[i]


def curve(rng: np.random.Generator, x: np.ndarray, y: np.ndarray) -> list[int]:
    rate, decay, scale = 10 ** rng.uniform([-4, -6, -1], [0.5, -1, 0.5])
    momentum, width = rng.uniform(0, 0.99), int(2 ** rng.uniform(1, 6.5))
    batch = int(2 ** rng.integers(3, 9))
    net = Net(rng, width, scale)
    errors = []
    for _ in range(EPOCHS):
        order = rng.permutation(TRAINED)
        for at in range(0, TRAINED, batch):
            rows = order[at:at + batch]
            net.step(x[rows], y[rows], rate, momentum, decay)
        said = np.nan_to_num(net.scores(x[TRAINED:])).argmax(1)
        errors.append(min(999, int((said != y[TRAINED:]).sum())))
    return errors


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("curves.txt")
    x, y = points(np.random.default_rng(1))
    with np.errstate(all="ignore"), out.open("w") as f:
        for i in range(CURVES):
            errors = curve(np.random.default_rng([2, i]), x, y)
            print("".join(f"{e:03d}" for e in errors), file=f)


main()

# SPDX-License-Identifier: Apache-2.0
"""A training with TensorFlow and one with Horovod: the same steps in a plain process and in a
worker. Imported where the framework is wanted."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable

import recovery

SIZES = (784, 512, 512, 10)


class Tensorflow:
    """A loop of one's own over a MultiWorkerMirroredStrategy."""

    def __init__(self, load: Callable[[], Any]) -> None:
        import tensorflow as tf
        self.tf, self.strategy = tf, tf.distribute.MultiWorkerMirroredStrategy()
        state = load()
        with self.strategy.scope():
            layers = [tf.keras.layers.Dense(n, activation="relu") for n in SIZES[1:-1]]
            self.model = tf.keras.Sequential([tf.keras.layers.Input((SIZES[0],)), *layers,
                                              tf.keras.layers.Dense(SIZES[-1])])
            self.optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
            self.optimizer.build(self.model.trainable_variables)
        if state:
            self.model.set_weights(state["weights"])
        self.at = int(state["at"]) if state else 0
        self.x = tf.random.normal((64, SIZES[0]))
        self.run = tf.function(self._run)

    def _run(self) -> Any:
        def one() -> Any:
            with self.tf.GradientTape() as tape:
                loss = self.tf.reduce_mean(self.model(self.x, training=True) ** 2) / 2
            variables = self.model.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss
        return self.strategy.reduce("SUM", self.strategy.run(one), axis=None)

    def step(self) -> None:
        float(self.run())
        self.at += 1

    def state(self) -> dict[str, Any]:
        return {"weights": self.model.get_weights(), "at": self.at}


class Horovod:
    """torch, with Horovod's optimizer."""

    def __init__(self, load: Callable[[], Any]) -> None:
        import horovod.torch as hvd
        import models
        import torch
        hvd.init()
        state = load()
        self.model = models.mlp()
        inner = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        if state:
            self.model.load_state_dict(state["model"])
        self.at = int(state["at"]) if state else 0
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(inner, self.model.named_parameters())
        self.x = torch.randn(64, SIZES[0])

    def step(self) -> None:
        self.optimizer.zero_grad()
        (self.model(self.x) ** 2).mean().backward()
        self.optimizer.step()
        self.at += 1

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "at": self.at}


KINDS: dict[str, Any] = {"tensorflow": Tensorflow, "horovod": Horovod}


def train(name: str, where: str, kills: int, rank: int, save: Callable[[dict[str, Any]], None],
          load: Callable[[], Any]) -> int:
    """As recovery.train: ranks kill themselves by turns, while the other is in its next step."""
    died = len([*Path(where).glob("kill-*")])
    training = KINDS[name](load)
    if died and not training.at:
        raise RuntimeError("there was no checkpoint to begin from")
    for here in range(recovery.STEPS):
        training.step()
        if here == 0 and died:
            recovery.note(Path(where, f"again-{died - 1}-{rank}"))
        if training.at % recovery.EVERY == 0:
            save(training.state())
    if died < kills and rank == died % 2:
        time.sleep(0.05)
        recovery.note(Path(where, f"kill-{died}"))
        os.kill(os.getpid(), signal.SIGKILL)
    if died < kills:
        training.step()  # without its peer
        raise RuntimeError("the other rank is not gone")
    return int(training.at)

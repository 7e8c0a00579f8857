# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the same ones in every run, and their state for checkpoints."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any

import torch

from manta._frameworks.torch import gpus, registry


def enable_reproducibility(seed: int = 0) -> None:
    """The same program gives the same bits again. Call it first in the train function.

    Seeds torch, numpy and random, and makes torch use deterministic algorithms; an operation that
    has none raises. Every rank has the same seed: models begin equal, and the random state that
    rank 0 saves in a checkpoint is every rank's. The order of the data is drawn from the seed and
    the number of the pass; processes of a DataLoader are seeded from it too. To go on with the same
    bits after a loss, put rng_state() into the checkpoint and give it to set_rng_state().

    The number of workers and of threads, the versions and the kind of processor must be the same.
    The order of a set of strings is set by PYTHONHASHSEED, which only counts when an interpreter is
    started: export it if that order matters to the program.
    """
    known = registry.current()
    known.seed = seed
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    seed_all(seed)
    before = (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic,
              torch.backends.cudnn.benchmark)
    _set_algorithms(True, True, False)
    if known.keeps:  # the next run of this process may not want it
        known.at_end.append(lambda: _set_algorithms(*before))


def _set_algorithms(only_deterministic: bool, cudnn: bool, benchmark: bool) -> None:
    torch.use_deterministic_algorithms(only_deterministic)
    torch.backends.cudnn.deterministic = cudnn
    torch.backends.cudnn.benchmark = benchmark


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)  # every GPU's, too
    random.seed(seed)
    if numpy := _numpy():
        numpy.random.seed(seed % 2**32)


def _numpy() -> Any:
    """None where torch itself came without it."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


# --- the state ------------------------------------------------------------------------------------


def rng_state() -> dict[str, Any]:
    """The state of all random numbers, the order of prepared loaders included. For a checkpoint:
    save it after a pass, between two batches it does not know the place in the pass."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "random": random.getstate()}
    if numpy := _numpy():
        state["numpy"] = numpy.random.get_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = [torch.cuda.get_rng_state(i) for i in gpus.numbers()]
    state["loaders"] = [loader.position() for loader in registry.current().loaders]
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Goes on from rng_state(). Call it after the model is made and before the first batch."""
    torch.set_rng_state(state["torch"].cpu())
    version, numbers, gauss = state["random"]
    random.setstate((version, tuple(numbers), gauss))
    if (numpy := _numpy()) and "numpy" in state:
        numpy.random.set_state(tuple(state["numpy"]))
    if "cuda" in state and torch.cuda.is_available():
        for i, one in zip(gpus.numbers(), state["cuda"]):
            torch.cuda.set_rng_state(one.cpu(), i)
    known = registry.current()
    known.positions = list(state["loaders"])
    for loader, position in zip(known.loaders, known.positions):
        loader.load_position(position)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, random numbers from a seed; outside, nothing has happened."""
    numpy = _numpy()
    before = random.getstate(), numpy and numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        seed_all(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            if numpy:
                numpy.random.set_state(before[1])


# --- every generator of torch, as bytes -----------------------------------------------------------


def states() -> dict[str, bytes]:
    out = {"torch": bytes(torch.get_rng_state().tolist())}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        out |= {f"cuda{i}": bytes(torch.cuda.get_rng_state(i).tolist()) for i in gpus.numbers()}
    return out


def set_states(found: dict[str, bytes]) -> None:
    if "torch" in found:
        torch.set_rng_state(_tensor(found["torch"]))
    if any(name.startswith("cuda") for name in found) and torch.cuda.is_available():
        for i in gpus.numbers():
            if state := found.get(f"cuda{i}"):
                torch.cuda.set_rng_state(_tensor(state), i)


def _tensor(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)

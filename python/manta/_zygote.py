# SPDX-License-Identifier: Apache-2.0
"""What workers are forked from: an interpreter that has imported what they need, and nothing of the
user's. It has one thread, has run no parallel region and has not looked for a GPU, so that its
copies can do all that."""

from __future__ import annotations

import gc
import sys


def load_torch() -> None:
    import torch
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data  # noqa: F401
    import manta._torch_world  # noqa: F401

    torch.set_num_threads(1)


def warm_torch() -> None:
    """The first step of the first optimizer imports as much again as torch itself. The first
    workers do that at the same time, each for itself; later ones find it done."""
    import torch

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()


LOAD = {"none": lambda: None, "torch": load_torch}
WARM = {"none": lambda: None, "torch": warm_torch}


def settle() -> None:
    """A garbage collection in a worker would touch, and so copy, every page: what is there now is
    left out of it."""
    gc.collect()
    gc.freeze()


def main() -> None:
    """Comes back in a worker at its end: the interpreter then finishes as any other."""
    from manta import _manta, _worker
    if not _manta.serving():
        sys.exit("manta._zygote is started by manta, not by hand")
    framework = sys.argv[1]
    try:
        import cloudpickle  # noqa: F401
        import manta._state  # noqa: F401
        LOAD[framework]()
    except Exception as e:
        _worker.broken = e  # a worker says so, where somebody reads it
    else:
        _worker.when_idle = WARM[framework]
    settle()
    _manta.serve(sys.orig_argv)

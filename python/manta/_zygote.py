# SPDX-License-Identifier: Apache-2.0
"""What workers are forked from: an interpreter that has imported what they need, and nothing of the
user's. It has one thread, has run no parallel region and has not looked for a GPU, so that its
copies can do all that."""

from __future__ import annotations

import gc
import sys


def warm_none() -> None:
    import cloudpickle  # noqa: F401
    import manta._worker  # noqa: F401


def warm_torch() -> None:
    """The first optimizer imports as much again as torch itself."""
    warm_none()
    import torch
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data  # noqa: F401

    torch.set_num_threads(1)
    model = torch.nn.Linear(1, 1)
    torch.optim.SGD(model.parameters(), lr=0.1)


WARM = {"none": warm_none, "torch": warm_torch}


def main() -> None:
    """Comes back in a worker at its end: the interpreter then finishes as any other."""
    from manta import _manta, _worker
    if not _manta.serving():
        sys.exit("manta._zygote is started by manta, not by hand")
    try:
        WARM[sys.argv[1]]()
    except Exception as e:
        _worker.broken = e  # a worker says so, where somebody reads it
    gc.collect()
    gc.freeze()  # a collection would touch, and so copy, every page
    _manta.serve(sys.orig_argv)

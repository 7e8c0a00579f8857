# SPDX-License-Identifier: Apache-2.0
"""One rank's part in torch's own tests of torch.distributed, in a train function.

torch starts the ranks of a test itself and gives each a gloo group. Here they are workers: the
tests ask for gloo, as a program would, and have the group of manta. Every test has a group of its
own: the one before is destroyed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
import unittest
from pathlib import Path
from typing import Any

MODULE = "torch.testing._internal.distributed.distributed_test"
UNDER_OWN_NAME = {"test_get_backend"}  # these look what the backend is called


class _ExpectTest(unittest.TestCase):
    """What torch's tests take from the package expecttest, where that is not installed."""

    def assertExpectedInline(self, actual: str, expect: str, skip: int = 0) -> None:
        self.assertMultiLineEqual(expect, actual)


def load(place: Path) -> Any:
    """The module of the tests; it looks at the environment when it is imported."""
    if importlib.util.find_spec("expecttest") is None:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        setattr(sys.modules["expecttest"], "TestCase", _ExpectTest)
    os.environ.update(BACKEND="gloo", TEMP_DIR=str(place), INIT_METHOD="env://")
    return importlib.import_module(MODULE)


def play_all(config: dict[str, Any]) -> None:
    """The tests `names`, in order. What became of each is a line in a file of this rank; the first
    that fails ends the run."""
    import torch.distributed as dist
    place = Path(config["place"])
    tests = load(place)

    class Player(tests.DistributedTest._DistTestBase, tests.TestDistBackend):  # type: ignore
        """Of the two, the first has the tests and the second what they call."""

    rank = dist.get_rank()
    with open(place / f"verdicts-{rank}", "a") as out:
        for name in config["names"]:
            print(f"{name}\tbegun", file=out, flush=True)
            why = _play(tests, Player, name, rank, place)
            print(f"{name}\t{'skipped: ' + why if why else 'passed'}", file=out, flush=True)


def _play(tests: Any, player: type, name: str, rank: int, place: Path) -> str:
    """Why it was skipped, or nothing."""
    from datetime import timedelta

    import torch.distributed as dist
    from torch.testing._internal import common_utils
    tests.BACKEND = "manta" if name in UNDER_OWN_NAME else "gloo"
    if dist.is_initialized():
        dist.destroy_process_group()
    seconds = tests.CUSTOM_PG_TIMEOUT.get(name, tests.default_pg_timeout)
    dist.init_process_group(tests.BACKEND, timeout=timedelta(seconds=seconds))
    one = player(name)
    one.rank = rank
    one.file_name = str(place / name)
    one._barrier()
    common_utils.set_rng_seed()
    why = ""
    try:
        getattr(one, name)()
    except unittest.SkipTest as e:
        why = str(e) or "no reason given"
    except SystemExit as e:
        why = next((s.message for s in tests.TEST_SKIPS.values() if s.exit_code == e.code), "")
        if not why:
            raise
    one._barrier()
    return why

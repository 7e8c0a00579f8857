# SPDX-License-Identifier: Apache-2.0
"""What workers are forked from: the first ones come at once, later ones find more loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from manta.sgd import Trainer


def look() -> tuple[bool, int, bool]:
    """In a worker: what the first step of an optimizer imports, its priority, its thread."""
    return ("torch._dynamo" in sys.modules, os.getpriority(os.PRIO_PROCESS, 0),
            threading.current_thread() is threading.main_thread())


@pytest.mark.deadline(120)
def test_later_workers_find_the_first_step_imported(tmp_path: Path) -> None:
    def one_more() -> tuple[bool, int, bool]:
        with Trainer("torch", logdir=tmp_path, quiet=True) as t:
            return t.run(look)[0]

    before = os.getpriority(os.PRIO_PROCESS, 0)
    with Trainer("torch", logdir=tmp_path, quiet=True) as first:
        first.start()  # its agent, and what it forks from, stay
        until = time.monotonic() + 100
        while not (seen := one_more())[0] and time.monotonic() < until:
            time.sleep(0.05)
        assert seen == (True, before, True)
        assert first.run(look)[0][1:] == (before, True)


def test_a_warm_up_has_a_thread_of_its_own_and_leaves_none() -> None:
    code = """
    import os, threading
    from manta._runtime import zygote

    seen = []
    zygote.at_low_priority(lambda: seen.append(os.getpriority(os.PRIO_PROCESS,
                                                               threading.get_native_id())))
    assert seen == [min(zygote.LOW_PRIORITY + os.getpriority(os.PRIO_PROCESS, 0), 19)], seen
    assert threading.active_count() == 1
    try:
        zygote.at_low_priority(lambda: 1 / 0)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("a failure was not told")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)

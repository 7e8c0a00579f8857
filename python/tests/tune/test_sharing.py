# SPDX-License-Identifier: Apache-2.0
"""What trials of one experiment share, and what each has to itself."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

from manta import tune

LARGE = 32 << 20


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "max_concurrent_trials": 1, **options})


def test_modules_are_imported_once_for_all_trials(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_trials.py").write_text("import os\nmade_in = os.getpid()\ncount = 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import of_trials  # type: ignore[import-not-found]

    def f(config: Any) -> dict[str, Any]:
        of_trials.count += 1
        return {"made": of_trials.made_in, "parent": os.getppid(), "pid": os.getpid(),
                "count": of_trials.count, "draw": random.random(), "other": numpy.random.random(),
                "set": os.environ.pop("OF_TRIALS", "")}

    monkeypatch.setenv("OF_TRIALS", "1")
    rows = [t.last_result for t in run(f, num_samples=4).trials]
    del sys.modules["of_trials"]
    assert {r["made"] for r in rows} == {r["parent"] for r in rows} and len({r["parent"] for r in
                                                                            rows}) == 1
    assert [r["count"] for r in rows] == [1] * 4 and [r["set"] for r in rows] == ["1"] * 4
    for what in ("pid", "draw", "other"):
        assert len({r[what] for r in rows}) == 4


@pytest.mark.parametrize("reuse", [False, True])
def test_each_trial_begins_with_the_environment_of_the_driver(
        reuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(config: Any) -> dict[str, Any]:
        seen = {name: os.environ.get(name, "-") for name in ("KEPT", "REMOVED", "ADDED", "RANK")}
        same = dict(os.environb) == dict(line.split(b"=", 1) for line in subprocess.run(
            ["env", "-0"], capture_output=True, check=True).stdout.split(b"\0") if line)
        if config["x"] == 0:
            os.environ["ADDED"] = "1"
        elif config["x"] == 1:
            os.environ["KEPT"] = "other"
        elif config["x"] == 2:
            del os.environ["REMOVED"]
        return {"seen": "".join(seen.values()), "same": same}

    monkeypatch.setenv("KEPT", "k")
    monkeypatch.setenv("REMOVED", "r")
    found = run(f, {"x": tune.grid_search([0, 1, 2, 3])}, reuse_actors=reuse)
    assert [(t.last_result["seen"], t.last_result["same"]) for t in found.trials] == [
        ("kr-0", True)] * 4


def test_a_module_that_fails_to_load_fails_the_trial_and_says_so(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    def f(config: Any) -> None:
        tune.report(at=only_here.__name__)

    (tmp_path / "only_here.py").write_text("raise OSError('not on this host')")
    with pytest.raises(tune.TuneError, match="not on this host"):
        run(f, num_samples=2)
    del sys.modules["only_here"]


def measured(what: str, field: str) -> int:
    """Bytes of this process in mappings with such a name."""
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            counts = what in line
        elif first == field + ":" and counts:
            total += int(rest[0]) << 10
    return total


@pytest.mark.parametrize("reuse", [False, True])
def test_large_parameters_are_there_once(tmp_path: Path, reuse: bool) -> None:
    data = numpy.arange(LARGE // 8, dtype="int64")

    def meet(name: str) -> None:
        """Both trials are here."""
        (tmp_path / f"{name}-{os.getpid()}").touch()
        by = time.monotonic() + 30
        while len(list(tmp_path.glob(f"{name}-*"))) < 2 and time.monotonic() < by:
            time.sleep(0.005)

    def f(config: Any, data: Any) -> dict[str, Any]:
        row = {"sum": int(data.sum())}
        meet("read")
        row["pss"] = measured("manta-shared", "Pss")
        meet("measured")
        data[0] = config["x"]
        return {**row, "first": int(data[0]), "copied": measured("manta-shared", "Anonymous")}

    found = run(tune.with_parameters(f, data=data), {"x": tune.grid_search([-1, -2])},
                max_concurrent_trials=2, reuse_actors=reuse)
    rows = [t.last_result for t in found.trials]
    assert [r["sum"] for r in rows] == [int(data.sum())] * 2
    assert all(LARGE // 3 <= r["pss"] <= LARGE * 2 // 3 for r in rows)  # half of it each
    assert [r["first"] for r in rows] == [-1, -2] and data[0] == 0
    assert all(0 < r["copied"] <= 2 << 20 for r in rows)  # a page, huge at most


def test_what_is_large_does_not_travel_with_every_trial() -> None:
    from manta.tune._trainable import Saving, Way, given
    payload = given(tune.with_parameters(lambda config, data: None, data=bytearray(LARGE)), None,
                    Saving(), Way()).job
    small, kept = payload.pack_trials("f", True)
    assert len(small) < 64 << 10 and kept is not None and sum(kept.where[2]) > LARGE
    fd = f"/proc/self/fd/{kept.where[1]}"
    assert os.stat(fd).st_size > LARGE
    del kept
    assert not os.path.exists(fd)
    assert len(payload.pack_trials("f", False)[0]) > LARGE  # other hosts do not see our memory

# SPDX-License-Identifier: Apache-2.0
"""What users pass, whatever it is and however large: config, function, checkpoint, results. Sizes
are just over what used to be limits: 1 MiB of a message, 64 MiB of a record of run.log."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from manta import sgd
from manta._front import config as _config
from manta.sgd import Trainer

OVER = (1 << 20) + 7
LARGE = (64 << 20) + 7


class Blob:
    """Not a plain value: it travels as a pickle."""

    def __init__(self, n: int):
        self.data = bytes(range(256)) * (n // 256) + bytes(n % 256)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and other.data == self.data


class Settings(Mapping[str, Any]):
    """As DictConfig is one: a Mapping that is no dict."""

    def __init__(self, **entries: Any):
        self._entries = entries

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclasses.dataclass
class Options:
    lr: float = 0.5
    tags: tuple[str, ...] = ("a", "b")


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    with Trainer(None, num_workers=2, quiet=True) as t:
        yield t


# --- configs --------------------------------------------------------------------------------------


def logged(trainer: Trainer) -> Any:
    """The config as `manta status` reads it from run.log."""
    command = Path(sys.executable).with_name("manta")
    out = subprocess.run([command, "status", "--json", str(trainer.latest_run_dir)],
                         capture_output=True, text=True, check=True, timeout=30)
    return json.loads(out.stdout)["config"]


CONFIGS = [argparse.Namespace(lr=0.5, tags=["a", "b"]), Options(), Settings(lr=0.5, tags="ab"),
           types.SimpleNamespace(lr=0.5), {"lr": 0.5}]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: type(c).__name__)
def test_a_config_is_any_object(trainer: Trainer, config: Any) -> None:
    assert trainer.run(lambda config: type(config).__name__, config) == [type(config).__name__] * 2
    assert trainer.run(lambda **config: config["lr"], config) == [0.5, 0.5]
    assert _config.described(config)["lr"] == 0.5


def test_keywords_are_those_of_the_config(trainer: Trainer) -> None:
    def train(**config: Any) -> Any:
        return config

    assert trainer.run(train, {"lr": 1}) == [{"lr": 1}] * 2
    assert trainer.run(train) == [{}] * 2
    with pytest.raises(TypeError, match="has no entries by name\nhint: write .*train\\(config\\)"):
        trainer.run(train, 7)
    assert trainer.run(lambda config: config, 7) == [7, 7]


def test_every_config_can_be_logged(trainer: Trainer) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    strange = {"deep": deep, "hostile": Hostile(), 7: {8: "nine"}, "$py": b"x", "nan": float("nan"),
               "big": 1 << 70, "nul": "a\0b", "lone": "\ud800", "many": list(range(5000)),
               "text": "x" * 50000, "blob": bytes(OVER)}
    assert trainer.run(lambda config: len(config), strange) == [len(strange)] * 2
    found = logged(trainer)
    assert found["7"] == {"8": "nine"} and found["\\$py"] == "b'x'" and found["many"][:2] == [0, 1]
    assert "Hostile" in found["hostile"] and len(found["text"]) < 11000
    assert "Hostile" in _config.described(Hostile())["config"]
    assert _config.described([1, 2]) == {"config": [1, 2]}


# --- sizes ----------------------------------------------------------------------------------------


def test_config_and_function_are_limited_by_memory_alone(trainer: Trainer) -> None:
    data, used = bytes(LARGE), Blob(LARGE)
    assert trainer.run(lambda config: (len(config["data"]), len(used.data)),
                       {"data": data}) == [(LARGE, LARGE)] * 2


def test_checkpoints_are_limited_by_memory_alone(trainer: Trainer) -> None:
    def train() -> tuple[int, int]:
        given = sgd.load_checkpoint()
        sgd.save_checkpoint(blob=Blob(OVER), data=bytes(LARGE))
        found = sgd.load_checkpoint()
        assert found["blob"] == Blob(OVER)
        return len(given["data"]), len(found["data"])

    assert trainer.run(train, checkpoint={"data": bytes(LARGE)}) == [(LARGE, LARGE)] * 2
    assert len(trainer.latest_checkpoint["data"]) == LARGE


def results(config: dict[str, Any]) -> Any:
    Path(config["marks"], str(sgd.world_rank())).touch(exist_ok=False)  # it is called once
    if sgd.world_rank() == 0:
        return {"plain": bytes(LARGE), "small": [1, 2.5, None]}
    return Blob(OVER)


def test_large_results_come_back_and_a_restored_run_has_them(tmp_path: Path) -> None:
    config = {"marks": str(tmp_path)}
    with Trainer(None, num_workers=2, quiet=True) as t:
        want = [{"plain": bytes(LARGE), "small": [1, 2.5, None]}, Blob(OVER)]
        assert t.run(results, config) == want
        run = t.latest_run_dir
    assert run is not None
    assert sorted(p.name for p in (run / "results").iterdir()) == ["rank-0.pickle", "rank-1.pickle"]
    assert pickle.loads((run / "results" / "rank-1.pickle").read_bytes()) == Blob(OVER)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]
    again = Trainer.restore(run, quiet=True)
    assert again.run(results, config) == want
    again.shutdown()


class OnlyThere:
    def __reduce__(self) -> Any:
        return _explode, (bytes(OVER),)


def _explode(data: bytes) -> Any:
    if not sgd.in_worker():
        raise LookupError("not here")
    return OnlyThere()


def test_a_result_that_cannot_be_read_is_named_with_its_file(trainer: Trainer) -> None:
    with pytest.raises(LookupError, match="not here") as e:
        trainer.run(lambda: OnlyThere() if sgd.world_rank() == 1 else 1)
    note = e.value.__notes__[0]
    file = Path(note.rpartition(" ")[2])
    assert "the result of rank 1" in note and file.name == "rank-1.pickle" and file.is_file()


def test_small_results_are_in_no_file(trainer: Trainer) -> None:
    assert trainer.run(lambda: Blob(1000)) == [Blob(1000)] * 2
    assert trainer.latest_run_dir is not None
    assert not (trainer.latest_run_dir / "results").exists()


# --- load_checkpoint ------------------------------------------------------------------------------


def loads() -> list[Any]:
    import time
    seen = [sgd.load_checkpoint()]
    if sgd.world_rank() == 0:
        time.sleep(0.2)  # the other's save comes first, and its load waits
    sgd.save_checkpoint(step=1, rank=sgd.world_rank())
    seen.append(sgd.load_checkpoint())
    for step in range(2, 6):
        sgd.save_checkpoint(step=step, rank=sgd.world_rank())
    seen.append(sgd.load_checkpoint())
    return [state and (state["step"], state["rank"]) for state in seen]


def test_load_is_the_same_on_every_rank(trainer: Trainer) -> None:
    zero, one = trainer.run(loads)
    assert zero == [None, (1, 0), (5, 0)]
    assert one[0] is None and one[1][1] == 0 and one[1][0] >= 1 and one[2] == (5, 0)
    zero, one = trainer.run(loads, checkpoint={"step": 50, "rank": 7})
    assert zero[0] == one[0] == (50, 7) and zero[2] == one[2] == (5, 0)


def test_load_does_not_wait_for_a_rank_that_left(trainer: Trainer) -> None:
    def train() -> Any:
        if sgd.world_rank() == 1:
            sgd.save_checkpoint(step=1)
            return sgd.load_checkpoint()
        return None

    with pytest.raises(RuntimeError, match="rank 0 has left its train function") as e:
        trainer.run(train)
    assert e.value.rank == 1  # type: ignore[attr-defined]


def test_a_late_rank_loads_what_retention_has_deleted(tmp_path: Path) -> None:
    """The attempt of a run that goes on begins from a file, which is deleted before a slow rank
    comes to load it."""

    def train(config: dict[str, Any]) -> Any:
        import time
        late = config["resumed"] and sgd.world_rank() == 1
        by = time.monotonic() + 30
        while late and Path(config["first"]).is_dir():
            assert time.monotonic() < by, "retention has deleted nothing"
            time.sleep(0.01)
        state = sgd.load_checkpoint() or {"step": 0}
        for step in range(state["step"] + 1, state["step"] + (40 if config["resumed"] else 4)):
            sgd.report(step=step)
            sgd.save_checkpoint(step=step)
            time.sleep(0.01 if config["resumed"] else 0.1)
        if not config["resumed"]:
            raise ValueError("it breaks off")
        return state["step"], bool(late)

    with Trainer(None, num_workers=2, quiet=True, logdir=tmp_path) as t:
        with pytest.raises(ValueError, match="it breaks off"):
            t.run(train, {"resumed": False})
        run = t.latest_run_dir
    assert run is not None
    newest = max((run / "checkpoints").iterdir())  # a slow disk has not taken every one
    with Trainer.restore(run, quiet=True) as t:
        config = {"resumed": True, "first": str(newest)}
        assert t.run(train, config) == [(3, False), (3, True)]

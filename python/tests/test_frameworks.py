# SPDX-License-Identifier: Apache-2.0
"""Frameworks by name: what is found, what is imported for it, and that one more is a row."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any, Callable

import numpy as np
import pytest

from manta import _frameworks, _manta, _pickled, _state
from manta._frameworks.base import Backend, BackendConfig, Framework
from manta._frameworks.tensors import Packer, Reader, Tensors
from manta._state.entry import Packing, Source, typed
from manta.sgd import TorchConfig, Trainer
from manta._front.backend import resolve


def test_none_of_them_is_imported_to_be_asked() -> None:
    code = """
import sys
from manta import _frameworks
for name in ("none", *_frameworks.names()):
    found = _frameworks.get(name)
    assert found.name == name and found is _frameworks.get(name)
    assert found.config().framework == name
    _frameworks.is_installed(name), found.hint("x"), found.hint_for_file("x"), found.functions
_frameworks.automatic()
assert [f.name for f in _frameworks.imported()] == ["none"]
assert not _frameworks.MODULES & set(sys.modules) and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class MineConfig(BackendConfig):
    framework = "mine"

    @property
    def backend_cls(self) -> type[Backend]:
        return Mine


class Mine(Framework):
    """One more, which this process seems to have imported."""
    name = "mine"
    synonyms = ("own",)
    saves_itself = True

    def config(self) -> MineConfig:
        return MineConfig()

    def hint(self, name: str) -> str | None:
        return "'mine'" if name == "my" else None

    def is_peer_error(self, error: Exception) -> bool:
        return "ring is broken" in str(error)

    def tensors(self) -> Tensors:
        return Boxes()


class Box:
    """A tensor of it."""

    def __init__(self, numbers: Any):
        self.numbers = np.array(numbers, np.float32)


class BoxPacker(Packer):
    kinds = (Box,)

    def __init__(self, found: Packing):
        self.found, self.seen = found, []  # type: ignore[var-annotated]

    def reduce(self, o: Any) -> Any:
        self.seen.append((self.found.number(), o))
        return getattr(_pickled, "box"), (self.seen[-1][0],)

    def place_all(self) -> None:
        for number, box in self.seen:
            x = box.numbers
            entry = self.found.add(self.found.path_of(box), typed("float32", x.shape, 4), x,
                                   _manta.address(x))
            self.found.places[number] = (entry, 0, None)


class BoxReader(Reader):
    def words(self, rank: int, source: Source) -> dict[str, Callable[..., Any]]:
        def box(number: int) -> Box:
            view = source.entries[source.names[source.places[number][0]]]
            return Box(np.frombuffer(view, np.float32))
        return {"box": box}


class Boxes(Tensors):
    def packer(self, found: Packing) -> Packer:
        return BoxPacker(found)

    def reader(self, device: Any, whole: bool) -> Reader:
        return BoxReader()

    def unwrapper(self) -> Callable[[Any], Any]:
        return lambda o: o[0] if type(o) is tuple and isinstance(o[0], Box) else o


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Framework:
    def box(*args: Any) -> None:
        raise AssertionError("nobody has put another in its place")
    box.__module__, box.__qualname__ = "manta._pickled", "box"
    monkeypatch.setattr(_pickled, "box", box, raising=False)
    row = _frameworks._Row("mine_of_a_test", __name__, "Mine", ("box",))
    monkeypatch.setitem(_frameworks._ROWS, "mine", row)
    monkeypatch.setitem(sys.modules, "mine_of_a_test", ModuleType("mine_of_a_test"))
    monkeypatch.setattr(_frameworks, "get", _frameworks.get.__wrapped__)  # nothing of it stays
    return _frameworks.get("mine")


def test_one_more_is_a_row(mine: Framework) -> None:
    assert "mine" in _frameworks.names()
    assert "mine" in [f.name for f in _frameworks.imported()]
    for name in ("mine", "own"):
        assert type(resolve(name, None)) is MineConfig
    with pytest.raises(ValueError, match="hint: 'mine'"):
        resolve("my", None)
    with pytest.raises(ValueError, match=r"'torch' \(= 'pytorch'\), .*'mine' \(= 'own'\), "):
        resolve("nothing", None)
    with pytest.raises(ValueError, match="torch or mine backend"):
        Trainer(None, quiet=True).run(lambda: None, checkpoint="auto")


def test_its_words_tell_of_a_lost_peer(mine: Framework) -> None:
    from manta._runtime import worker
    for said, is_echo in (("the ring is broken", True), ("Connection reset by peer", True),
                          ("a matrix is singular", False)):
        assert worker._may_be_echo(RuntimeError(said)) is is_echo, said
        assert not worker._may_be_echo(ValueError(said))


def test_its_tensors_are_entries_beside_those_of_another(mine: Framework) -> None:
    torch = pytest.importorskip("torch")
    from test_state import Kept
    state = {"a": torch.ones(2), "b": [Box([1, 2, 3])], "c": torch.zeros(1), "d": Box([4])}
    rows, value, keep = _state.pack(state)
    assert {row[0] for row in rows} == {"a", "b.0", "c", "d", "_pickle"}
    found = _state.restore(Kept(rows, value))  # type: ignore[arg-type]
    assert found["b"][0].numbers.tolist() == [1, 2, 3] and found["d"].numbers.tolist() == [4]
    assert torch.equal(found["a"], torch.ones(2)) and torch.equal(found["c"], torch.zeros(1))
    wrapped = {"x": (Box([1]), "the wrapper")}
    assert type(_state.clean(wrapped)["x"]) is Box


def test_one_whose_import_is_forbidden_is_not_imported(mine: Framework,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine_of_a_test", None)  # as tests of other projects do
    assert "mine" not in [f.name for f in _frameworks.imported()]


def test_a_name_that_nobody_knows() -> None:
    for call in (_frameworks.get, _frameworks.is_installed):
        with pytest.raises(ValueError, match="unknown framework 'jax'\nhint: .*none, torch"):
            call("jax")


def test_the_same_config_by_every_name() -> None:
    assert type(resolve(None, None)) is BackendConfig
    for name in ("torch", "pytorch", "auto"):
        assert resolve(name, None) == TorchConfig()

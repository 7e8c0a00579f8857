# SPDX-License-Identifier: Apache-2.0
"""Frameworks by name: what is found, what is imported for it, and that one more is a row."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from manta import _frameworks
from manta._frameworks.base import Backend, BackendConfig, Framework
from manta.sgd import TorchConfig, Trainer
from manta.sgd.backend import resolve


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


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Framework:
    row = _frameworks._Row("mine_of_a_test", __name__, "Mine")
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
    with pytest.raises(ValueError, match=r"'auto', 'torch' \(= 'pytorch'\), 'mine' \(= 'own'\), "):
        resolve("nothing", None)
    with pytest.raises(ValueError, match="torch or mine backend"):
        Trainer(None, quiet=True).run(lambda: None, checkpoint="auto")


def test_its_words_tell_of_a_lost_peer(mine: Framework) -> None:
    from manta._runtime import worker
    for said, is_echo in (("the ring is broken", True), ("Connection reset by peer", True),
                          ("a matrix is singular", False)):
        assert worker._may_be_echo(RuntimeError(said)) is is_echo, said
        assert not worker._may_be_echo(ValueError(said))


def test_a_name_that_nobody_knows() -> None:
    for call in (_frameworks.get, _frameworks.is_installed):
        with pytest.raises(ValueError, match="unknown framework 'jax'\nhint: .*none, torch"):
            call("jax")


def test_the_same_config_by_every_name() -> None:
    assert type(resolve(None, None)) is BackendConfig
    for name in ("torch", "pytorch", "auto"):
        assert resolve(name, None) == TorchConfig()

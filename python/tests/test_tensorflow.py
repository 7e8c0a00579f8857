# SPDX-License-Identifier: Apache-2.0
"""What workers with TensorFlow find, without TensorFlow: a module of a few names takes its place.
python/tests/with_tensorflow has the tests with the real one."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import _frameworks, sgd
from manta._front.backend import resolve
from manta._runtime import driver
from manta.sgd import TensorflowConfig, Trainer

FAKE = """
class _Threading:
    intra = inter = 0
    def set_intra_op_parallelism_threads(self, n): self.intra = n
    def set_inter_op_parallelism_threads(self, n): self.inter = n
class _Config:
    threading = _Threading()
class _Keras:
    layers = None
config, keras = _Config(), _Keras()
class Tensor: pass
class Variable: pass
"""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    where = tmp_path_factory.mktemp("fake")
    (where / "tensorflow").mkdir()
    (where / "tensorflow" / "__init__.py").write_text(FAKE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(where))
        patch.syspath_prepend(str(where))
        with Trainer("tensorflow", num_workers=3, threads_per_worker=1, max_retries=1) as made:
            yield made


def look(config: dict[str, Any]) -> dict[str, Any]:
    import tensorflow
    threading = tensorflow.config.threading
    return {"config": json.loads(os.environ["TF_CONFIG"]), "intra": threading.intra,
            "inter": threading.inter, "legacy": os.environ["TF_USE_LEGACY_KERAS"],
            "growth": os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]}


def test_every_worker_finds_the_cluster(trainer: Trainer) -> None:
    found = trainer.run(look)
    workers = found[0]["config"]["cluster"]["worker"]
    assert len(set(workers)) == 3 and all(w.startswith("127.0.0.1:") for w in workers)
    assert [f["config"] for f in found] == [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": r}} for r in range(3)]
    assert {(f["intra"], f["inter"], f["legacy"], f["growth"]) for f in found} == {
        (1, 2, "0", "true")}
    fewer = trainer.run(look, num_workers=2)
    again = fewer[0]["config"]["cluster"]["worker"]
    assert len(again) == 2 and not set(again) & set(workers), "a cluster of their own"


def try_port(config: dict[str, Any]) -> list[bool]:
    """Whether a stranger, TensorFlow, and somebody else after the run could have the port."""
    import tensorflow  # noqa: F401
    mine = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][sgd.world_rank()]
    port = int(mine.rpartition(":")[2])
    Path(config["where"], f"port-{sgd.world_rank()}").write_text(str(port))
    return [can_listen(port), can_listen(port, socket.SO_REUSEPORT),
            os.environ["TF_GRPC_REUSE_PORT"] == "1"]


def can_listen(port: int, *options: int) -> bool:
    with socket.socket() as s:
        for option in options:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            s.bind(("0.0.0.0", port))
            s.listen()
        except OSError:
            return False
        return True


def test_a_port_is_its_workers_own(trainer: Trainer, tmp_path: Path) -> None:
    assert trainer.run(try_port, {"where": str(tmp_path)}) == [[False, True, True]] * 3
    trainer.shutdown()
    ports = [int(p.read_text()) for p in tmp_path.iterdir()]
    assert len(ports) == 3 and all(can_listen(port) for port in ports)


def die_once(config: dict[str, Any]) -> list[str]:
    if sgd.world_rank() == 1 and not os.path.exists(config["mark"]):
        Path(config["mark"]).write_text(os.environ["TF_CONFIG"])
        os.kill(os.getpid(), 9)
    found: list[str] = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    return found


def test_a_revival_has_a_new_cluster(trainer: Trainer, tmp_path: Path) -> None:
    found = trainer.run(die_once, {"mark": str(tmp_path / "mark")})
    before = json.loads((tmp_path / "mark").read_text())["cluster"]["worker"]
    assert found == [found[0]] * 3 and not set(found[0]) & set(before)


def test_calls_between_runs_share_a_cluster(trainer: Trainer) -> None:
    class Keeper:
        pass
    trainer.start(Keeper)
    first, second = (trainer.execute(lambda o: os.environ["TF_CONFIG"]) for _ in range(2))
    assert first == second and len(set(first)) == 3
    trainer.shutdown()


def test_what_its_collectives_raise_may_tell_of_a_lost_peer(
        monkeypatch: pytest.MonkeyPatch) -> None:
    from types import ModuleType, SimpleNamespace

    from manta._runtime import worker

    class OpError(Exception):
        __module__ = "tensorflow.python.framework.errors_impl"
    fake = ModuleType("tensorflow")
    fake.errors = SimpleNamespace(OpError=OpError)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    assert worker._may_be_echo(OpError("recvmsg: reset"))
    assert not worker._may_be_echo(ValueError("recvmsg: Connection reset"))


def test_its_mistakes_get_a_hint() -> None:
    framework, config = _frameworks.get("tensorflow"), TensorflowConfig()
    for said, hint in (("Collective ops must be configured at program startup", "first in the"),
                       ("type (<class 'x.values.PerReplica'>) to a Tensor.", "pip install tf_ker"),
                       ("something else", "")):
        error = RuntimeError(said)
        framework.leave(config, error)
        assert hint in "".join(getattr(error, "__notes__", []))
        assert bool(hint) == hasattr(error, "__notes__")


# --- in the driver --------------------------------------------------------------------------------


def test_names_of_it() -> None:
    assert resolve("tensorflow", None) == TensorflowConfig() == resolve("auto", TensorflowConfig())
    for name in ("tf", "keras"):
        with pytest.raises(ValueError, match="hint: 'tensorflow'"):
            resolve(name, None)
    with pytest.raises(TypeError, match=r"TensorflowConfig\(\) has no argument 'timeout_s'"):
        TensorflowConfig(timeout_s=3)  # type: ignore[call-arg]


def test_processes_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match="keep_workers=True: .*\nhint: leave it out"):
        Trainer("tensorflow", keep_workers=True)


def test_what_it_reads_in_its_import_is_a_part_of_the_program(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_frameworks, "is_installed", lambda name: True)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    assert "TF_USE_LEGACY_KERAS=0" in driver.program("tensorflow")[1]
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    assert "TF_USE_LEGACY_KERAS=1" in driver.program("tensorflow")[1]


def test_a_missing_package_says_how_to_get_it(tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "tensorflow").mkdir()  # a folder of that name is not the package
    assert not _frameworks.is_installed("tensorflow")
    with pytest.raises(ModuleNotFoundError, match="not installed .*\nhint: pip install tensorflow"):
        driver.program("tensorflow")

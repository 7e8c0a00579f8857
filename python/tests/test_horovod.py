# SPDX-License-Identifier: Apache-2.0
"""What workers with Horovod find, without Horovod: a package of a few names takes its place.
python/tests/with_horovod has the tests with the real one."""

from __future__ import annotations

import http.client
import os
import socket
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import _frameworks, _manta, sgd
from manta._front.backend import resolve
from manta._frameworks.horovod.rendezvous import Server
from manta._runtime import driver
from manta.sgd import HorovodConfig, Trainer

FAKE = """
up = False
def init():
    global up
    up = True
def is_initialized():
    return up
def shutdown():
    global up
    up = False
"""


# --- the rendezvous -------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server("127.0.0.1")
    yield made
    if not made.closing:
        made.close()


def ask(server: Server, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_ranks_meet_by_keys_and_values(server: Server) -> None:
    assert ask(server, "GET", "/global/0")[0] == 404, "not yet"
    assert ask(server, "PUT", "/global/0", b"\x00address") == (200, b"")
    assert ask(server, "PUT", "/local_0/0", b"") == (200, b"")
    assert ask(server, "GET", "/global/0") == (200, b"\x00address")
    assert ask(server, "GET", "/local_0/0") == (200, b"")
    assert ask(server, "DELETE", "/global/1") == (200, b"")
    assert ask(server, "GET", "/global/0") == (200, b"\x00address"), "others may need it"
    assert ask(server, "POST", "/global/0")[0] == 501


def test_it_takes_no_more_than_addresses(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest("PUT", "/a/b")
    connection.putheader("Content-Length", str(1 << 30))
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()
    assert ask(server, "GET", "/a/b")[0] == 404


def test_it_listens_at_one_address_until_it_is_closed(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    port = server.port
    silent = socket.create_connection(("127.0.0.1", port))  # somebody who says nothing
    server.close()
    silent.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# --- in workers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Horovod, as if built for a torch that is as little there."""
    where = tmp_path_factory.mktemp("fake")
    for name, text in (("horovod", ""), ("horovod/torch", FAKE), ("torch", "")):
        (where / name).mkdir()
        (where / name / "__init__.py").write_text(text)
    (where / "horovod" / "torch" / "mpi_lib_v2.so").write_text("")
    (where / "sitecustomize.py").write_text(
        "import manta._frameworks.torch as t\n"
        "for name in ('load', 'warm', 'reseed'):\n"
        "    setattr(t.Torch, name, lambda self: None)\n"
        "t.Torch.set_threads = lambda self, n: None\n"
        "t.Torch.tensors = lambda self: None\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(where))
        patch.syspath_prepend(str(where))
        yield


def look(config: dict[str, Any]) -> dict[str, str]:
    import horovod.torch as hvd
    hvd.init()
    port = int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    socket.create_connection(("127.0.0.1", port), 10).close()
    _manta.comm().barrier()  # as the real one, which waits for the others in init()
    if config and sgd.world_rank() == 1 and not os.path.exists(config["mark"]):
        Path(config["mark"]).write_text(str(port))
        os.kill(os.getpid(), 9)
    return {k.removeprefix("HOROVOD_"): v for k, v in os.environ.items()
            if k.startswith("HOROVOD_")} | {"pid": str(os.getpid())}


@pytest.mark.usefixtures("fake")
def test_every_worker_finds_its_place() -> None:
    with Trainer(HorovodConfig(timeout_s=45, verbose=2), num_workers=3, quiet=True) as trainer:
        found = trainer.run(look)
        for rank, env in enumerate(found):
            ours = {"RANK": rank, "SIZE": 3, "LOCAL_RANK": rank, "LOCAL_SIZE": 3, "CROSS_RANK": 0,
                    "CROSS_SIZE": 1, "HOSTNAME": "127.0.0.1", "CONTROLLER": "gloo",
                    "CPU_OPERATIONS": "gloo", "GLOO_IFACE": "lo", "GLOO_TIMEOUT_SECONDS": 45,
                    "GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "LOG_LEVEL": "info"}
            assert {k: str(v) for k, v in ours.items()}.items() <= env.items()
        with pytest.raises(ConnectionRefusedError):  # with the call, its port is gone
            socket.create_connection(("127.0.0.1", int(found[0]["GLOO_RENDEZVOUS_PORT"])))


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("keep", [False, True])
def test_a_revival_has_a_new_rendezvous(tmp_path: Path, keep: bool) -> None:
    with Trainer("horovod", num_workers=2, max_retries=1, quiet=True,
                 keep_workers=keep) as trainer:
        found = trainer.run(look, {"mark": str(tmp_path / "mark")})
    assert found[0]["GLOO_RENDEZVOUS_PORT"] == found[1]["GLOO_RENDEZVOUS_PORT"]
    assert found[0]["GLOO_RENDEZVOUS_PORT"] != (tmp_path / "mark").read_text()


@pytest.mark.usefixtures("fake")
def test_calls_between_runs_share_what_was_initialized() -> None:
    class Keeper:
        def start(self) -> int:
            import horovod.torch as hvd
            hvd.init()
            return int(os.environ["HOROVOD_RANK"])

        def is_up(self) -> bool:
            import horovod.torch as hvd
            return bool(hvd.is_initialized())
    with Trainer("horovod", num_workers=2, quiet=True) as trainer:
        trainer.start(Keeper)
        assert trainer.execute(lambda o: o.is_up()) == [False, False]
        assert trainer.execute(lambda o: o.start()) == [0, 1]
        assert trainer.execute(lambda o: o.is_up()) == [True, True]
        assert trainer.run(lambda: sys.modules["horovod.torch"].is_initialized()) == [False] * 2


# --- in the driver --------------------------------------------------------------------------------


def test_names_of_it() -> None:
    assert resolve("horovod", None) == HorovodConfig()
    with pytest.raises(ValueError, match="hint: 'horovod'"):
        resolve("hvd", None)


@pytest.mark.parametrize("wrong, said", [
    ({"nics": "eth0"}, "a set of interface names"), ({"nics": set()}, "a set of interface names"),
    ({"verbose": 9}, "from 0 to 3"), ({"timeout_s": 0}, "seconds >= 1"),
    ({"timeout_s": "a"}, "seconds >= 1")])
def test_wrong_settings(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HorovodConfig(**wrong)
    with pytest.raises(TypeError, match=r"HorovodConfig\(\) has no argument 'ssh_port'"):
        HorovodConfig(ssh_port=22)  # type: ignore[call-arg]


def test_what_it_raises_may_tell_of_a_lost_peer() -> None:
    class HorovodInternalError(RuntimeError):
        pass
    horovod = _frameworks.get("horovod")
    assert horovod.is_peer_error(HorovodInternalError("shut down"))
    assert not horovod.is_peer_error(RuntimeError("a matrix is singular"))


def test_a_missing_package_says_how_to_get_it(tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ModuleNotFoundError) as caught:
        driver.program("horovod")
    for words in ("HOROVOD_WITH_PYTORCH=1", "HOROVOD_WITHOUT_MPI=1",
                  "pip install --no-build-isolation horovod", "docs/port.md"):
        assert words in str(caught.value)
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    with pytest.raises(ImportError, match="built for none of torch, tensorflow\nhint: HOROVOD_"):
        _frameworks.get("horovod").load()

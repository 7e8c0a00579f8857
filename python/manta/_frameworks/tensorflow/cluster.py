# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's cluster in a worker: TF_CONFIG, which a MultiWorkerMirroredStrategy reads.

(1) A worker owns its port. It holds a socket that is bound to it and does not listen; TensorFlow
    binds its own beside it (SO_REUSEPORT), and nobody else can in between. The port is free again
    when the process ends, and all processes of an attempt end with it.
(2) TensorFlow listens at every address of the host, without asking who calls. Where all ranks are
    on this host its socket is bound to the loopback interface as soon as it is there.
(3) A process is in one cluster in its life: TensorFlow knows no way out. Calls that the same ranks
    make in the same processes have the same cluster.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from typing import Any

from manta import _manta
from manta._frameworks.exchange import of_all


@dataclass(eq=False, repr=False)
class _Cluster:
    token: str  # no other cluster has it
    rank: int
    workers: list[str]  # their addresses, by rank
    held: socket.socket


_cluster: _Cluster | None = None


def join() -> None:
    """All ranks call it, before each call of the user's."""
    global _cluster
    rank, size = _manta.place()[:2]
    same = _cluster is not None and (_cluster.rank, len(_cluster.workers)) == (rank, size)
    tokens = set(of_all(_cluster.token if _cluster is not None and same else ""))
    if _cluster is None or tokens != {_cluster.token}:
        _check_free()
        _cluster = _make(rank)
    os.environ["TF_CONFIG"] = _text(_cluster)
    os.environ["TF_GRPC_REUSE_PORT"] = "1"


def _make(rank: int) -> _Cluster:
    address, _ = _manta.own_address()
    held = _hold_port(address)
    port = held.getsockname()[1]
    told = of_all(f"{secrets.token_hex(8)} {_host(address)}:{port}")
    if address.startswith("127."):
        _keep_inside(port)
    return _Cluster(told[0].split()[0], rank, [words.split()[1] for words in told], held)


def _text(cluster: _Cluster) -> str:
    return json.dumps({"cluster": {"worker": cluster.workers},
                       "task": {"type": "worker", "index": cluster.rank}})


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _hold_port(address: str) -> socket.socket:
    """Free at every address: TensorFlow takes all of them."""
    six = ":" in address
    held = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("::" if six else "0.0.0.0", 0))
    return held


def _check_free() -> None:
    """Whether this process can join a new cluster."""
    context = _context()
    if _cluster is not None and getattr(context, "_context_handle", None) is not None:
        raise RuntimeError("this worker is in a TensorFlow cluster whose other ranks have changed, "
                           "and a process cannot leave one\nhint: trainer.shutdown(), and start "
                           "again; runs have fresh processes by themselves")


def _context() -> Any:
    """TensorFlow's, without setting it up; None: it is not imported."""
    module = sys.modules.get("tensorflow.python.eager.context")
    return module.context() if module is not None else None


# --- on one host ----------------------------------------------------------------------------------


def _keep_inside(port: int) -> None:
    """When TensorFlow has set itself up, and its server with it."""
    context = _context()
    if context is None or not hasattr(context, "ensure_initialized"):
        return
    set_up = context.ensure_initialized

    def ensure_initialized() -> None:
        set_up()
        if context._collective_ops_server_def is not None:
            vars(context).pop("ensure_initialized", None)  # the class's own again
            _bind_to_loopback(port)

    context.ensure_initialized = ensure_initialized


def _bind_to_loopback(port: int) -> None:
    """The listening socket of this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile, or no socket
            continue
        with found:
            if _listens(found, port):
                _bind_to(found, b"lo\0")


def _listens(found: socket.socket, port: int) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return found.getsockname()[1] == port and found.getsockopt(
        socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def _bind_to(found: socket.socket, interface: bytes) -> None:
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface)
    except PermissionError:  # Linux before 5.7 wants a capability
        pass

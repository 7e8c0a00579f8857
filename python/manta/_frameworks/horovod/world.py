# SPDX-License-Identifier: Apache-2.0
"""Horovod in a worker: what hvd.init(), which the user's function calls, finds in the environment.

Rank 0 serves the rendezvous, from before the call of the function to after it: each attempt has its
own, and none is left when its process is gone. A process that is used again shuts Horovod down
between two groups of ranks.
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from typing import Any

from manta import _manta
from manta._frameworks.exchange import of_all
from manta._frameworks.horovod.config import HorovodConfig
from manta._frameworks.horovod.rendezvous import Server

_MODULES = ("horovod.torch", "horovod.tensorflow")
_LEVELS = ("warning", "warning", "info", "debug")  # by `verbose`


@dataclass(eq=False, repr=False)
class _World:
    token: str  # no other group of ranks has it
    rank: int
    size: int
    server: Server | None = None  # of rank 0, during a call


_world: _World | None = None


def enter(config: HorovodConfig) -> None:
    """A new group, whatever was there before. All ranks call it."""
    global _world
    leave()
    rank, size, local_rank, _, node = _manta.place()[:5]
    address, interface = _manta.own_address()
    server = Server(address) if rank == 0 else None
    world = _World("", rank, size, server)
    try:
        told = [words.split() for words in of_all(
            f"{secrets.token_hex(8)} {address} {server.port if server else 0} {node} "
            f"{local_rank}")]
    except BaseException:
        _close(world)
        raise
    world.token = told[0][0]
    _world = world
    os.environ.update(_places(told), **_options(config, interface),
                      HOROVOD_GLOO_RENDEZVOUS_ADDR=told[0][1],
                      HOROVOD_GLOO_RENDEZVOUS_PORT=told[0][2])
    os.environ.pop("HOROVOD_ELASTIC", None)


def _places(told: list[list[str]]) -> dict[str, str]:
    """Ranks as Horovod counts them: on a host, and of one number on every host."""
    rank, size, local_rank, local_size = _manta.place()[:4]
    across = [int(node) for _, _, _, node, local in told if int(local) == local_rank]
    return {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(size),
            "HOROVOD_LOCAL_RANK": str(local_rank), "HOROVOD_LOCAL_SIZE": str(local_size),
            "HOROVOD_CROSS_RANK": str(sorted(across).index(_manta.place()[4])),
            "HOROVOD_CROSS_SIZE": str(len(across)), "HOROVOD_HOSTNAME": told[rank][1]}


def _options(config: HorovodConfig, interface: str) -> dict[str, str]:
    return {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": ",".join(sorted(config.nics)) if config.nics else interface,
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(config.timeout_s)),
            "HOROVOD_LOG_LEVEL": os.environ.get("HOROVOD_LOG_LEVEL", _LEVELS[config.verbose])}


def leave() -> None:
    """Nothing stays: the process may be called again, in another group."""
    global _world
    world, _world = _world, None
    try:
        for module in _initialized():
            module.shutdown()
    finally:
        if world is not None:
            _close(world)


def _close(world: _World) -> None:
    server, world.server = world.server, None
    if server is not None:
        server.close()


def _initialized() -> list[Any]:
    """Horovod's modules that the function has initialized."""
    found = (sys.modules.get(name) for name in _MODULES)
    return [m for m in found if m is not None and m.is_initialized()]


# --- around a call between runs -------------------------------------------------------------------


def resume(config: HorovodConfig) -> None:
    """Horovod as the call before has left it, or a new group if not all ranks have been there."""
    rank, size = _manta.place()[:2]
    there = _world is not None and (_world.rank, _world.size) == (rank, size)
    token = _world.token if _world is not None and there and _initialized() else ""
    tokens = set(of_all(token))
    if not token or tokens != {token}:
        enter(config)


def rest(error: BaseException | None) -> None:
    """Between two calls nobody listens. After a failure ranks may be out of step."""
    if error is not None or not _initialized():
        leave()
    elif _world is not None:
        _close(_world)

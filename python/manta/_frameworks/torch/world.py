# SPDX-License-Identifier: Apache-2.0
"""torch.distributed in a worker: its default group.

It is made anew around every train function, which may destroy it and make it again. Calls between
runs have one that stays: it is made by the first of them, rests between two, and ends with the
process, with the next run, or when one of its ranks has got another process.

The ranks find each other without a port or a file name. On one host the store is a memory file of
rank 0, which the others open through /proc: it ends with the last of them. Between hosts it is
rank 0's TCPStore, on a port of the system's choice that libmanta's own connection tells.
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from manta import _manta
from manta._frameworks.torch import process_group
from manta._frameworks.torch.gpus import take as take_gpus

_ADDRESS_BYTES = 256
_REACH = timedelta(seconds=60)  # in which rank 0's store is found, or never


@dataclass(eq=False, repr=False)
class _World:
    """The group that is there now."""
    backend: str  # as torch has it
    rank: int
    size: int
    token: int = 0  # no other group has it
    address: str = ""
    port: str = ""
    interface: str = ""
    one_host: bool = True
    store: Any = None
    store_fd: int = -1


_world: _World | None = None

_torch_init = c10d.init_process_group
_torch_destroy = c10d.destroy_process_group


# --- around a train function ----------------------------------------------------------------------


def enter(backend: str | None, init_method: str | None, timeout_s: float) -> None:
    global _world
    leave()
    rank, size, _, local_size = _manta.place()[:4]
    gpus = take_gpus(backend)
    name = _beside_nccl() if gpus.alone and backend != "nccl" else backend or "manta"
    process_group.beside_gpus = "," in name
    process_group.take_devices("cpu", *(["cuda"] if gpus.here else []))
    process_group.decline_recorder()
    world = _World(name, rank, size, one_host=local_size == size)
    try:
        _world = world
        _make(world, init_method if init_method and "://" in init_method else None,
              timedelta(seconds=timeout_s))
    except BaseException:
        leave()
        raise


def _make(world: _World, url: str | None, timeout: timedelta, **options: Any) -> None:
    """The default group, of all ranks as they are. All of them call it."""
    process_group.default_ranks = []
    _meet(world, world.one_host, None if url else timeout)
    _torch_init(world.backend, init_method=url, store=world.store, rank=world.rank,
                world_size=world.size, timeout=timeout, **options)
    if world.size > 1:  # nobody leaves, and closes what is his, before all are in
        _manta.comm().barrier()


def leave() -> None:
    """Nothing of the group stays: the process may be called again, in another one."""
    global _world
    world, _world = _world, None
    try:
        if dist.is_initialized():
            process_group.rest()  # whoever is still waited for may never come
            _torch_destroy()
    finally:
        if world is not None:
            _close_store(world)
        process_group.forget()


def _close_store(world: _World) -> None:
    world.store = None
    if world.store_fd >= 0:
        os.close(world.store_fd)
        world.store_fd = -1


# --- around a call between runs -------------------------------------------------------------------


def resume(backend: str | None, init_method: str | None, timeout_s: float) -> None:
    """The group of the call before, or a new one if not all ranks have been there."""
    if _is_common(_world):
        assert _world is not None
        process_group.wake()
        _tell(_world)
        return
    enter(backend, init_method, timeout_s)
    atexit.unregister(leave)
    atexit.register(leave)


def rest(error: BaseException | None) -> None:
    """After a failure ranks may be out of step. Ours are in step again at the next call; no other
    group knows how to."""
    if error is None or (_world is not None and _world.backend == "manta"):
        process_group.rest()
    else:
        leave()


def _is_common(world: _World | None) -> bool:
    """Whether all ranks have the same group. All of them ask."""
    rank, size = _manta.place()[:2]
    there = world is not None and (world.rank, world.size) == (rank, size)
    token = world.token if world is not None and there and dist.is_initialized() else 0
    tokens = set(_of_all(token, size))
    return token != 0 and tokens == {token}


def _of_all(number: int, size: int) -> list[int]:
    """That of each rank."""
    if size == 1:
        return [number]
    mine, all_ = torch.tensor([number]), torch.zeros(size, dtype=torch.int64)
    _manta.comm().allgather(mine.data_ptr(), all_.data_ptr(), 8, process_group.BYTE)
    return [int(n) for n in all_.tolist()]


def _beside_nccl() -> str:
    """For CPU and GPU tensors. NCCL wants a GPU for each rank: where workers share one, ours takes
    its tensors, too. torch before 2.14 lets only C++ be a part of a mixed group."""
    return f"cpu:{'manta' if process_group.can_be_a_part() else 'gloo'},cuda:nccl"


# --- rendezvous -----------------------------------------------------------------------------------


def _meet(world: _World, one_host: bool, timeout: timedelta | None) -> None:
    """Rank 0 tells where its store is, and a port that is free there. timeout: of the store; None:
    there is none."""
    own, world.interface = _manta.own_address()
    told = torch.zeros(_ADDRESS_BYTES, dtype=torch.uint8)
    if world.rank == 0:
        token = secrets.randbits(62) + 1
        place = _open_store(world, one_host, own, timeout) if timeout else "-"
        text = f"{own} {_free_port(own)} {token} {place}".encode()
        told[:len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    if world.size > 1:
        _manta.comm().broadcast(told.data_ptr(), _ADDRESS_BYTES, process_group.BYTE, 0)
    world.address, world.port, token_text, place = bytes(told.tolist()).rstrip(
        b"\0").decode().split(" ")
    world.token = int(token_text)
    _tell(world)
    if timeout and world.rank > 0:
        _join_store(world, place, timeout)


def _tell(world: _World) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = world.address, world.port
    os.environ.setdefault("GLOO_SOCKET_IFNAME", world.interface)


def _open_store(world: _World, one_host: bool, address: str, timeout: timedelta) -> str:
    if one_host:
        world.store_fd = os.memfd_create("manta-store", os.MFD_CLOEXEC)
        world.store = dist.FileStore(f"/proc/self/fd/{world.store_fd}", world.size)
        return f"/proc/{os.getpid()}/fd/{world.store_fd}"
    port, fd = 0, {}
    if "master_listen_fd" in (dist.TCPStore.__init__.__doc__ or ""):  # else it listens everywhere
        listener = _listen(address)
        port = int(listener.getsockname()[1])
        fd["master_listen_fd"] = listener.detach()
    world.store = dist.TCPStore(address, port, world.size, is_master=True, timeout=timeout,
                                wait_for_workers=False, **fd)
    return str(world.store.port)


def _join_store(world: _World, place: str, timeout: timedelta) -> None:
    if place.startswith("/"):
        world.store_fd = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        world.store = dist.FileStore(f"/proc/self/fd/{world.store_fd}", world.size)
        return
    try:
        world.store = dist.TCPStore(world.address, int(place), world.size, is_master=False,
                                    timeout=min(timeout, _REACH), wait_for_workers=False)
    except RuntimeError as e:  # of torch.distributed
        own = " ".join(_manta.own_address())
        raise RuntimeError(f"cannot reach the store of rank 0 at {world.address}, port "
                           f"{place}, from {own}\nhint: the address of a host is chosen by "
                           f"Host(address=…), or NAME@ADDRESS in MANTA_HOSTS\n{e}") from e
    world.store.set_timeout(timeout)


def _listen(address: str) -> socket.socket:
    """At that address alone, on a port of the system's choice."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def _free_port(address: str) -> int:
    with _listen(address) as s:
        return int(s.getsockname()[1])


# --- what a train function may call itself --------------------------------------------------------


def _by_device(backend: str) -> dict[str, str]:
    """"cpu:gloo,cuda:nccl", or the name of one of them."""
    if ":" not in backend:
        return {"cuda" if backend == "nccl" else "cpu": backend}
    return dict(part.split(":", 1) for part in backend.split(","))


def _agree(theirs: str, ours: str) -> bool:
    """Ours may do what a program asks gloo for, and, for a GPU that workers share, NCCL."""
    have = _by_device(ours)
    stands_for = {"manta": {"manta", "gloo"}, "gloo": {"gloo"}, "nccl": {"nccl"}}
    if ours == "manta" and "cuda" in process_group.devices:
        have["cuda"] = ours
        stands_for[ours].add("nccl")
    return all(device in have and wanted in stands_for[have[device]]
               for device, wanted in _by_device(theirs).items())


def _asks_for(number: int, variable: str, ours: int) -> bool:
    """Whether what is asked for, in an argument or in the environment, is what we have."""
    told = os.environ.get(variable, "") if number == -1 else str(number)
    return told in ("", str(ours))


def _check_agreement(world: _World, backend: Any, world_size: int, rank: int) -> None:
    for name, theirs, ours in (("world_size", world_size, world.size), ("rank", rank, world.rank)):
        if theirs not in (-1, ours):
            raise ValueError(f"init_process_group({name}={theirs}): this worker is rank "
                             f"{world.rank} of {world.size}, and its process group is up; leave "
                             f"the argument out, or call destroy_process_group() first")
    if backend is not None and not _agree(str(backend).lower(), world.backend):
        raise ValueError(f"init_process_group({str(backend)!r}): this worker's process group is "
                         f"{world.backend!r}\nhint: TorchConfig(backend=…) and use_gpu=… of the "
                         f"Trainer choose it; after destroy_process_group() any can be made")


def _is_ours(world: _World, backend: Any, init_method: Any, world_size: int, rank: int,
             options: dict[str, Any]) -> bool:
    """Whether a group that is made again is the one that there was."""
    elsewhere = options.get("store") is not None or init_method not in (None, "env://")
    return (not elsewhere and _asks_for(world_size, "WORLD_SIZE", world.size)
            and _asks_for(rank, "RANK", world.rank)
            and (backend is None or _agree(str(backend).lower(), world.backend)))


def _set_timeout(timeout: timedelta) -> None:
    """torch has a function for all groups since 2.15; the one before knew only its own."""
    group = dist.group.WORLD
    if hasattr(dist, "set_timeout") or isinstance(group, process_group.Group):
        group.set_timeout(timeout)
    else:
        c10d._set_pg_timeout(timeout)


@functools.wraps(_torch_init)
def init_process_group(backend: Any = None, init_method: Any = None, timeout: Any = None,
                       world_size: int = -1, rank: int = -1, *args: Any, **kwargs: Any) -> None:
    """In a train function the group is there already: what agrees with it is quiet. Made again
    after destroy_process_group(), it is the same, unless another is asked for."""
    if _world is None:
        _torch_init(backend, init_method, timeout, world_size, rank, *args, **kwargs)
    elif dist.is_initialized():
        _check_agreement(_world, backend, world_size, rank)
        if timeout is not None:
            _set_timeout(timeout)
    elif not args and _is_ours(_world, backend, init_method, world_size, rank, kwargs):
        options = {k: v for k, v in kwargs.items() if k in ("group_name", "device_id")}
        _make(_world, None, timeout or c10d.default_pg_timeout, **options)
    else:
        process_group.default_ranks = None
        _torch_init(backend, init_method, timeout, world_size, rank, *args, **kwargs)


@functools.wraps(_torch_destroy)
def destroy_process_group(group: Any = None) -> None:
    """With the default group the store ends, too: another begins without its keys."""
    whole = group is None or group is dist.group.WORLD
    _torch_destroy(group)
    if whole and _world is not None:
        _close_store(_world)
        process_group.forget()


for _module in (dist, c10d):
    setattr(_module, "init_process_group", init_process_group)
    setattr(_module, "destroy_process_group", destroy_process_group)

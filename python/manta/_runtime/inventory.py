# SPDX-License-Identifier: Apache-2.0
"""What this host has to give to workers, and what of it they have not taken."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import Any

from manta import _command, _manta
from manta._runtime import driver

Resources = dict[str, float]


def cluster_resources() -> Resources:
    """What this host has: "CPU", "GPU" if there is one, "memory" in bytes, and what was declared by
    init(resources=…) or MANTA_RESOURCES. init(num_cpus=, num_gpus=), MANTA_NUM_CPUS and
    MANTA_NUM_GPUS count more than what was detected."""
    found = _detected()
    for name, variable in (("CPU", "MANTA_NUM_CPUS"), ("GPU", "MANTA_NUM_GPUS")):
        declared = _manta.knob(variable)
        if declared is not None:
            found[name] = float(declared)
    found |= {k: float(v) for k, v in json.loads(_manta.knob("MANTA_RESOURCES") or "{}").items()}
    return {name: amount for name, amount in found.items() if amount or name == "CPU"}


def available_resources() -> Resources:
    """The same without what workers of this process's trainers hold now. What all of is taken is
    left out."""
    left = cluster_resources()
    for trainer in list(driver.trainers):
        for name, amount in trainer._holds().items():
            left[name] = max(left.get(name, 0.0) - amount, 0.0)
    return {name: amount for name, amount in left.items() if amount}


def nodes() -> list[dict[str, Any]]:
    """The host, as a list of one."""
    name = socket.gethostname()
    return [{"NodeID": name, "Alive": True, "alive": True, "NodeName": name,
             "NodeManagerHostname": name, "NodeManagerAddress": own_ip(),
             "Resources": cluster_resources()}]


def own_ip() -> str:
    """The address by which this host reaches others; it sends nothing to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:  # no network
            return "127.0.0.1"
        return str(s.getsockname()[0])


def _detected() -> Resources:
    """As `manta info` says, which respects the affinity mask and the cgroup's quota."""
    said = json.loads(subprocess.run([_command.path(), "info", "--json"], check=True, text=True,
                                     stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout)
    return {"CPU": float(said["cpus"]), "GPU": float(len(said["gpus"])),
            "memory": float(said["memory"])}

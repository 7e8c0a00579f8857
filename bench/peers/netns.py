# SPDX-License-Identifier: Apache-2.0
"""Two hosts for a bench: network namespaces, joined by a pair of interfaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from types import TracebackType


def possible() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


def ip(*args: str) -> str:
    return subprocess.run(["ip", *args], check=True, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


class TwoHosts:
    """names[i] is a namespace with the interface devs[i] and an address in `net`."""

    net = "10.79.0.0/24"

    def __init__(self) -> None:
        self.names = [f"manta-bench-{os.getpid()}-{c}" for c in "ab"]
        self.devs = [f"mb{os.getpid()}{c}" for c in "ab"]

    def __enter__(self) -> TwoHosts:
        try:
            self.make()
        except (subprocess.CalledProcessError, TimeoutError):
            self.remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.remove()

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.devs[0], "netns", self.names[0], "type", "veth",
           "peer", "name", self.devs[1], "netns", self.names[1])
        for i, (name, dev) in enumerate(zip(self.names, self.devs)):
            ip("-n", name, "addr", "add", f"10.79.0.{i + 1}/24", "dev", dev)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", dev, "up")
        self.wait_until_up()

    def wait_until_up(self) -> None:
        for _ in range(500):
            if all("state UP" in ip("-n", n, "link", "show", d)
                   for n, d in zip(self.names, self.devs)):
                return
            time.sleep(0.02)
        raise TimeoutError("the interfaces do not come up")

    def manta_hosts(self, manta: str, ranks: int) -> str:
        """For MANTA_HOSTS: so many ranks on each, by agents inside."""
        return "; ".join(f"{name}@{dev} {ranks} ip netns exec {name} {manta} agent --stdio"
                         for name, dev in zip(self.names, self.devs))

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)

# SPDX-License-Identifier: Apache-2.0
"""bench/py/others_plain.py FRAMEWORK - two plain processes with TensorFlow or Horovod: from before
the exec of the first to the end of the first step of the later.

With RANK behind it: one of them. As with manta, each computes with one thread.
"""

import json
import os
import socket
import subprocess
import sys
import time
from typing import Callable

import others


def tensorflow_places() -> Callable[[int], dict[str, str]]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    workers = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return lambda rank: {"TF_CONFIG": json.dumps({
        "cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
        "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}


def horovod_places() -> Callable[[int], dict[str, str]]:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer
    server = RendezvousServer(0)
    port = server.start()
    server.init(get_host_assignments(parse_hosts("localhost:2"), 2))
    return lambda rank: {
        "HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_HOSTNAME": "localhost", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port), "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_IFACE": "lo"}


def start_both(name: str) -> float:
    """Milliseconds."""
    places = {"tensorflow": tensorflow_places, "horovod": horovod_places}[name]()
    begin = time.monotonic_ns()
    both = [subprocess.Popen([sys.executable, __file__, name, str(rank)], text=True,
                             stdout=subprocess.PIPE,
                             env={**os.environ, **places(rank), "OMP_NUM_THREADS": "1"})
            for rank in range(2)]
    said = [p.communicate()[0].split() for p in both]
    if any(p.returncode for p in both):
        sys.exit(f"a plain process failed: {[p.returncode for p in both]}")
    return (max(int(words[-1]) for words in said) - begin) / 1e6


if len(sys.argv) > 2:
    others.KINDS[sys.argv[1]](lambda: None).step()
    print(time.monotonic_ns(), flush=True)
    os._exit(0)  # what comes after the step is not measured
print("plain_ms", start_both(sys.argv[1]), flush=True)
os._exit(0)

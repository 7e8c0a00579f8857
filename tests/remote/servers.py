# SPDX-License-Identifier: Apache-2.0
"""Servers that others wrote and that speak S3, on this host: rclone, which checks signatures, and
moto, whose ranges, pages, parts and conditions are right."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
KEY, SECRET = "mantakey", "mantasecret"
BIN = ROOT / "build" / "servers" / "bin"


def install() -> None:
    subprocess.run([ROOT / "scripts" / "servers"], check=True)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server did not start"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server does not listen")


def start(name: str, port: int, folder: Path) -> subprocess.Popen[bytes]:
    command = {
        "rclone": [BIN / "rclone", "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key",
                   f"{KEY},{SECRET}", folder],
        "moto": [BIN / "moto_server", "-H", "127.0.0.1", "-p", str(port)],
    }[name]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port, server)
    return server


def stop(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()


def environment(port: int, secret: str = SECRET) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith("AWS_") and not k.lower().endswith("_proxy")}
    return kept | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": KEY,
                   "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true",
                   "HOME": "/nonexistent"}


def make_bucket(port: int, name: str) -> None:
    """On moto, which takes requests without a signature."""
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(f"PUT /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n"
                  f"Connection: close\r\n\r\n".encode())
        assert b" 200 " in s.recv(4096)


class Faulty:
    """A server in front of another one, on a port of its own: the first `times` requests (of those
    that have `only` in their first line) get "503", a "reset", or lose their connection after the
    first bytes of the request's body ("cut"). hold: requests wait. `refused` counts requests for
    which the other one was not there."""

    def __init__(self, port: int, fault: str, times: int, only: bytes = b""):
        self.behind, self.fault, self.left, self.only = port, fault, times, only
        self.fired = self.refused = 0
        self.seen: list[bytes] = []
        self.hold = False
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])

    def __enter__(self) -> Faulty:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One request at a time, each over a connection of its own to the server behind."""
        with client:
            while (request := self._head(client)) is not None:
                head, begun = request
                line = head.split(b"\r\n", 1)[0]
                with self.lock:
                    self.seen.append(line)
                    fails = self.left > 0 and self.only in line
                    self.left -= fails
                    self.fired += fails
                if fails and not self._fail(client, head):
                    return
                if not fails and not self._pass_on(client, head, begun):
                    return

    @staticmethod
    def _head(client: socket.socket) -> tuple[bytes, bytes] | None:
        data = b""
        while b"\r\n\r\n" not in data:
            try:
                more = client.recv(65536)
            except OSError:
                return None
            if not more:
                return None
            data += more
        head, _, begun = data.partition(b"\r\n\r\n")
        return head, begun

    def _fail(self, client: socket.socket, head: bytes) -> bool:
        """False: the connection is gone."""
        if self.fault == "503":
            client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nRetry-After: 0\r\n"
                           b"Connection: close\r\n\r\n")
            self._linger(client)
        elif self.fault == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif b"content-length: 0" not in head.lower() and not head.startswith((b"GET", b"DELETE")):
            client.settimeout(1)
            client.recv(1000)
        return False

    @staticmethod
    def _linger(client: socket.socket) -> None:
        """What comes after the answer is read: to close before that is a reset, by which the answer
        can get lost."""
        client.settimeout(5)
        try:
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 20):
                pass
        except OSError:
            pass

    def _pass_on(self, client: socket.socket, head: bytes, begun: bytes) -> bool:
        while self.hold:
            time.sleep(0.01)
        length = next((int(h.split(b":")[1]) for h in head.split(b"\r\n")
                       if h.lower().startswith(b"content-length:")), 0)
        try:
            server = socket.create_connection(("127.0.0.1", self.behind), 20)
        except OSError:
            self.refused += 1
            return False
        with server:
            try:
                server.sendall(head + b"\r\nConnection: close\r\n\r\n" + begun)
                left = length - len(begun)
                while left > 0 and (data := client.recv(min(left, 1 << 20))):
                    server.sendall(data)
                    left -= len(data)
                while data := server.recv(1 << 20):
                    client.sendall(data)
            except OSError:
                pass
        return False

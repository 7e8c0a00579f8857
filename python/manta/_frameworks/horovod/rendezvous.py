# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of Horovod's Gloo controller meet: keys and values over HTTP.

PUT /scope/key stores, GET gives the value or 404 as long as there is none, DELETE says that a rank
has what it needs. It listens at one address, on a port of the system's choice.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LARGEST = 1 << 20  # bytes of a value: addresses and ports


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _LARGEST:
            self._answer(400)
            return
        value = self.rfile.read(int(size))
        with self.server.changing:
            self.server.values[self.path] = value
        self._answer(200)

    def do_GET(self) -> None:
        with self.server.changing:
            value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_DELETE(self) -> None:
        self._answer(200)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str):
        if ":" in address:
            self.address_family = socket.AF_INET6
        self.values: dict[str, bytes] = {}
        self.changing = threading.Lock()
        self.closing = False
        super().__init__((address, 0), _Handler)
        self.thread = threading.Thread(target=self._serve, name="horovod-rendezvous", daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Without the name of the host, which another server would be asked for."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def _serve(self) -> None:
        while not self.closing:
            self.handle_request()

    def close(self) -> None:
        """Returns when nobody listens any more."""
        self.closing = True
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self.thread.join()
        self.server_close()

# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/data do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "data"


def run(tmp_path: Path, name: str, *words: str, **env: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name, *words], text=True, timeout=55,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          env={**os.environ, "MANTA_RESULTS": str(tmp_path), **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_folder_larger_than_its_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    out = run(tmp_path, "csv_folder.py", "8")
    size, rows = map(int, re.search(r"^(\d+) MB, (\d+) rows", out, re.M).groups())  # type: ignore
    assert size >= 8 and rows % 4096 == 0
    found = re.findall(r"weights \[(.*)\], at most (\S+) MB", out)
    assert len(found) == 2
    for weights, most in found:
        assert [float(w) for w in weights.split(",")] == pytest.approx([3, -2, 0.5, 1], abs=0.02)
        assert float(most) <= 2.1


def test_cross_validation(tmp_path: Path) -> None:
    out = run(tmp_path, "cross_validation.py")
    errors = re.findall(r"^split \d: mean squared error (\S+)$", out, re.M)
    assert len(errors) == 5 and all(float(e) < 0.1 for e in errors)


def test_resume(tmp_path: Path) -> None:
    out = run(tmp_path, "resume.py")
    assert "goes on in epoch 1, behind 170 rows" in out
    assert "240 rows, each one once: True" in out


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as a reader needs; that the real thing works is tested with real servers."""

    files = {f"set/part-{k}.csv": "v\n" + "".join(f"{k * 10 + i}\n" for i in range(10))
             for k in range(3)}

    def log_message(self, *words: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/bucket").strip("/")
        body = self.files.get(path, "").encode()
        status, kind = 200, "text/csv"
        if not path:
            body = ("<ListBucketResult>" + "".join(
                f"<Contents><Key>{k}</Key><Size>{len(v)}</Size><ETag>a</ETag></Contents>"
                for k, v in self.files.items()) + "</ListBucketResult>").encode()
            kind = "application/xml"
        elif not body:
            status = 404
        elif given := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(given[1]), min(int(given[2] or len(body)), len(body) - 1)
            status, whole, body = 206, len(body), body[start:end + 1]
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end}/{whole}")
        self.send_header("Content-Type", kind)
        self.send_header("ETag", '"a"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def test_s3(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        out = run(tmp_path, "s3.py", "s3://bucket/set", "v", AWS_ACCESS_KEY_ID="a",
                  AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1",
                  AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()
    assert "30 rows, mean of v 14.500" in out

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_s3.py S3_CAT - s3:// against two servers that others wrote: rclone, which checks signatures,
and moto, whose ranges and pages are right. S3_CAT lists names and hashes what it reads; the same
program over the files of this host says what is right.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

for folder in ("tools", "remote"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / folder))
from servers import SECRET, environment, free_port, install, start, stop  # noqa: E402
from tap import main  # noqa: E402

S3_CAT = sys.argv[1]


def put(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, data=body, method="PUT",
                                     headers={"Content-Type": "application/octet-stream"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(request, timeout=20).close()


def upload(port: int, folder: Path) -> None:
    """What rclone serves by itself, moto is given; it takes requests without a signature."""
    for bucket in folder.iterdir():
        put(f"http://127.0.0.1:{port}/{bucket.name}", b"")
        for path in bucket.rglob("*"):
            if path.is_file():
                key = urllib.parse.quote(str(path.relative_to(folder)))
                put(f"http://127.0.0.1:{port}/{key}", path.read_bytes())


def make_files(folder: Path) -> None:
    (folder / "bucket" / "many").mkdir(parents=True)
    (folder / "bucket" / "odd names" / "deep").mkdir(parents=True)
    (folder / "bucket" / "large.bin").write_bytes(os.urandom(9_000_001))
    for i in range(1100):  # a page has 1000
        (folder / "bucket" / "many" / f"{i:04}.csv").write_text(f"n\n{i}\n")
    for name in ("a b+c.csv", "ü&=%41.csv", "deep/x.csv", "_hidden.csv"):
        (folder / "bucket" / "odd names" / name).write_text(name)


@contextmanager
def serving(name: str) -> Iterator[tuple[int, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="manta-s3-"))
    port = free_port()
    try:
        make_files(folder)
        server = start(name, port, folder)
        try:
            if name == "moto":
                upload(port, folder)
            yield port, folder
        finally:
            stop(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cat(port: int, *names: str, secret: str = SECRET) -> subprocess.CompletedProcess[str]:
    return subprocess.run([S3_CAT, *names], env=environment(port, secret), text=True,
                          capture_output=True, timeout=120)


def assert_same(port: int, folder: Path, name: str) -> None:
    """s3://NAME is what FOLDER/NAME is."""
    there = cat(port, f"s3://{name}")
    assert there.returncode == 0, there.stderr
    here = cat(port, f"{folder}/{name}")
    assert there.stdout == here.stdout.replace(f"{folder}/", "s3://"), name
    assert there.stdout


def check_reading(name: str) -> None:
    with serving(name) as (port, folder):
        assert_same(port, folder, "bucket/large.bin")
        assert_same(port, folder, "bucket/many")
        assert_same(port, folder, "bucket/many/00[0-4]?.csv")
        assert_same(port, folder, "bucket/odd names/")
        assert_same(port, folder, "bucket")
        gone = cat(port, "s3://bucket/none.csv")
        assert gone.returncode == 1 and gone.stderr.startswith("ENOENT: "), gone.stderr
        gone = cat(port, "s3://no-such-bucket/x")
        assert gone.returncode == 1 and gone.stderr.startswith("ENOENT: "), gone.stderr
        if name == "rclone":
            wrong = cat(port, "s3://bucket/large.bin", secret="wrong")
            assert wrong.returncode == 1 and wrong.stderr.startswith("EDENIED: "), wrong.stderr


def test_rclone_is_read() -> None:
    check_reading("rclone")


def test_moto_is_read() -> None:
    check_reading("moto")


def read_while_it_dies(restarts: bool) -> tuple[int, str, str, str]:
    """The server is killed in the middle of large reads, and comes back or does not."""
    folder = Path(tempfile.mkdtemp(prefix="manta-s3-"))
    port = free_port()
    (folder / "bucket").mkdir()
    (folder / "bucket" / "x.bin").write_bytes(os.urandom(30_000_000))
    server = start("rclone", port, folder)
    try:
        reader = subprocess.Popen([S3_CAT] + ["s3://bucket/x.bin"] * 8, env=environment(port),
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert reader.stdout is not None
        time.sleep(0.2)
        server.send_signal(signal.SIGKILL)
        server.wait()
        if restarts:
            time.sleep(0.3)
            server = start("rclone", port, folder)
        out, err = reader.communicate(timeout=120)
        here = cat(port, *[f"{folder}/bucket/x.bin"] * 8).stdout
        return reader.returncode, out, err, here.replace(f"{folder}/", "s3://")
    finally:
        stop(server)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_server_that_comes_back_is_read_on() -> None:
    code, out, err, here = read_while_it_dies(restarts=True)
    assert code == 0, err
    assert out == here


def test_a_server_that_stays_away_is_an_error() -> None:
    code, out, err, here = read_while_it_dies(restarts=False)
    assert code == 1 and out != here
    assert err.startswith("EIO: s3://bucket/x.bin: ") and "tried 6 times" in err, err


install()
main(globals(), sys.argv[2:])

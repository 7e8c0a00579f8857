#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_store.py STORE - objects that are stored on two servers that others wrote (servers.py), on
one that is busy or breaks off, and on one that is killed half-way. STORE puts, gets, lists and
removes them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

for folder in ("tools", "remote"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / folder))
from servers import (SECRET, Faulty, environment, free_port, install, make_bucket,  # noqa: E402
                     start, stop)
from tap import main  # noqa: E402

STORE = sys.argv[1]
LARGE = 34_000_001  # three parts


def store(port: int, *words: object, secret: str = SECRET,
          folder: str = "s3://bucket/runs") -> subprocess.CompletedProcess[str]:
    return subprocess.run([STORE, folder, *map(str, words)], env=environment(port, secret),
                          text=True, capture_output=True, timeout=120)


def stored(port: int, *words: object) -> str:
    done = store(port, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(name: str) -> Iterator[tuple[int, Path]]:
    place = Path(tempfile.mkdtemp(prefix="manta-store-"))
    port = free_port()
    (place / "buckets" / "bucket").mkdir(parents=True)
    server = start(name, port, place / "buckets")
    try:
        if name == "moto":
            make_bucket(port, "bucket")
        yield port, place
    finally:
        stop(server)
        shutil.rmtree(place, ignore_errors=True)


def make(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(size))
    return path


def check_objects(name: str) -> None:
    with serving(name) as (port, place):
        small, large = make(place / "small", 1000), make(place / "large", LARGE)
        empty, odd = make(place / "empty", 0), "odd name+ü&=%41.bin"
        for path, key in ((small, "a/small"), (large, "a/large"), (empty, "empty"), (small, odd)):
            stored(port, "put", key, path)
            stored(port, "get", key, place / "back")
            assert (place / "back").read_bytes() == path.read_bytes(), key
        listed = dict(reversed(line.split(" ", 1)) for line in stored(port, "ls").splitlines())
        assert listed == {"a/small": "1000", "a/large": str(LARGE), "empty": "0", odd: "1000"}
        assert len(stored(port, "ls", "a/").splitlines()) == 2
        stored(port, "put", "a/large", small)  # in the place of the other one
        stored(port, "get", "a/large", place / "back")
        assert (place / "back").read_bytes() == small.read_bytes()
        stored(port, "rm", "a/small")
        stored(port, "rm", "a/small")  # what is not there is gone
        gone = store(port, "get", "a/small", place / "back")
        assert gone.returncode == 1 and gone.stderr.startswith("ENOENT: "), gone.stderr
        none = store(port, "put", "x", small, folder="s3://no-such-bucket/runs")
        assert none.returncode == 1 and "there is no bucket \"no-such-bucket\"" in none.stderr, none


def test_rclone_stores() -> None:
    check_objects("rclone")


def test_moto_stores() -> None:
    check_objects("moto")


def test_a_name_is_claimed_once() -> None:
    with serving("moto") as (port, _):
        stored(port, "claim", "run/.mine")
        again = store(port, "claim", "run/.mine")
        assert again.returncode == 1 and "ESTATE" in again.stderr, again.stderr


def test_a_wrong_secret_is_told() -> None:
    with serving("rclone") as (port, place):
        for size in (10, LARGE):
            wrong = store(port, "put", "x", make(place / "x", size), secret="wrong")
            assert wrong.returncode == 1, wrong
            assert wrong.stderr.startswith("EDENIED: s3://bucket/runs/x: "), wrong.stderr
            assert "secret" in wrong.stderr.lower()


def test_busy_servers_and_resets_are_overcome() -> None:
    with serving("moto") as (port, place):
        large = make(place / "large", LARGE)
        for fault in ("503", "reset", "cut"):
            with Faulty(port, fault, times=3, only=b"partNumber") as faulty:
                stored(faulty.port, "put", "large", large)
                assert faulty.fired == 3, (fault, faulty.fired)
            with Faulty(port, fault, times=3, only=b"GET") as faulty:
                stored(faulty.port, "get", "large", place / "back")
                assert faulty.fired == 3, (fault, faulty.fired)
            assert (place / "back").read_bytes() == large.read_bytes(), fault


def test_an_upload_that_fails_is_taken_back() -> None:
    with serving("moto") as (port, place):
        small, large = make(place / "small", 10), make(place / "large", LARGE)
        stored(port, "put", "x", small)
        with Faulty(port, "503", times=1000, only=b"partNumber=2") as faulty:
            failed = store(faulty.port, "put", "x", large)
            assert failed.returncode == 1 and "HTTP 503; tried 6 times" in failed.stderr, failed
            assert faulty.fired >= 6
            assert any(line.startswith(b"DELETE") and b"uploadId=" in line for line in faulty.seen)
        stored(port, "get", "x", place / "back")
        assert (place / "back").read_bytes() == small.read_bytes()


def test_a_server_that_comes_back_takes_the_rest() -> None:
    place = Path(tempfile.mkdtemp(prefix="manta-store-"))
    port = free_port()
    (place / "buckets" / "bucket").mkdir(parents=True)
    server = start("rclone", port, place / "buckets")
    try:
        large = make(place / "large", 15_000_000)
        with Faulty(port, "cut", times=0) as faulty:
            done: list[subprocess.CompletedProcess[str]] = []
            worker = threading.Thread(target=lambda: done.append(
                store(faulty.port, "put", "x", large)))
            faulty.hold = True
            worker.start()
            while not faulty.seen:
                time.sleep(0.01)
            stop(server)
            faulty.hold = False
            time.sleep(0.3)
            server = start("rclone", port, place / "buckets")
            worker.join()
            assert done[0].returncode == 0, done[0].stderr
            assert faulty.refused > 0  # it was away while it was asked
        stored(port, "get", "x", place / "back")
        assert (place / "back").read_bytes() == large.read_bytes()
    finally:
        stop(server)
        shutil.rmtree(place, ignore_errors=True)


install()
main(globals(), sys.argv[2:])

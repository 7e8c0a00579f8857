# SPDX-License-Identifier: Apache-2.0
"""A large object of a server that speaks S3, on this host: manta next to curl with as many
connections."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from kit import Bench, CannotMeasure, Row, median, pair_ratio, parse

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "remote"))
import servers  # noqa: E402

CONNECTIONS = 4
NAME = "s3://bucket/large.bin"


@contextmanager
def serving(scratch: Path, mb: int) -> Iterator[int]:
    """rclone, which reads the file from memory once it was read."""
    servers.install()
    with tempfile.TemporaryDirectory(dir=scratch) as d:
        (Path(d) / "bucket").mkdir()
        with open(Path(d) / "bucket" / "large.bin", "wb") as f:
            for _ in range(mb):
                f.write(os.urandom(1_000_000))
        port = servers.free_port()
        server = servers.start("rclone", port, Path(d))
        try:
            yield port
        finally:
            servers.stop(server)


def curl_mb_s(port: int, mb: int) -> float:
    """One process, as many ranges as connections, at once."""
    size, each = mb * 1_000_000, -(-mb * 1_000_000 // CONNECTIONS)
    words: list[str] = ["curl", "-s", "--parallel", "--parallel-immediate", "--fail"]
    for i in range(CONNECTIONS):
        words += ["--next"] if i else []
        words += ["-s", "--fail", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user",
                  f"{servers.KEY}:{servers.SECRET}", "-r",
                  f"{i * each}-{min(size, (i + 1) * each) - 1}", "-o", "/dev/null",
                  f"http://127.0.0.1:{port}/bucket/large.bin"]
    began = time.monotonic()
    done = subprocess.run(words, env=servers.environment(port), capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotMeasure(f"curl: exit code {done.returncode} {done.stderr.strip()}")
    return mb / (time.monotonic() - began)


def s3(b: Bench) -> list[Row]:
    mb = b.sizes.get_mb
    ours: list[float] = []
    theirs: list[float] = []
    if shutil.which("curl") is None:
        raise CannotMeasure("curl is not installed")
    with serving(b.scratch, mb) as port:
        account = {k: v for k, v in servers.environment(port).items() if k.startswith("AWS_")}
        for _ in range(b.sizes.rounds + 2):
            ours += parse(b.text("data", "get", "--dir", NAME, "--mb", mb, "--reps", 1,
                                 **account))["get_mb_s"]
            theirs.append(curl_mb_s(port, mb))
    ours, theirs = ours[1:], theirs[1:]  # the first of each has warmed the files
    ratio = pair_ratio(ours, theirs)
    return [Row("s3-get", f"S3 GET of {mb} MB in ranges, {CONNECTIONS} connections", "MB/s", ours,
                ">= 0.8 x curl", ratio is not None and ratio >= 0.8, "curl", theirs, ratio,
                f"rclone on this host; {median(theirs):.0f} MB/s by curl")]

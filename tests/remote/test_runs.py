#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_runs.py TRAIN MANTA - runs that are stored under s3://, on servers that others wrote
(servers.py) and that are killed, refuse, or are not there. TRAIN is tests/remote/train.c, MANTA the
command.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

for folder in ("tools", "remote"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / folder))
from servers import (SECRET, environment, free_port, install, make_bucket, start,  # noqa: E402
                     stop)
from tap import main  # noqa: E402

TRAIN, MANTA = sys.argv[1:3]
URI = "s3://bucket/runs"


@dataclass
class Store:
    """A server with its bucket, and hosts that know it: each has staging directories of its own."""
    name: str
    place: Path
    port: int
    server: subprocess.Popen[bytes]

    def host(self, name: str = "a", **more: str) -> dict[str, str]:
        return {**environment(self.port), "MANTA_STAGING": str(self.place / name),
                "MANTA_RESULTS": str(self.place / name / "results"), "MANTA_BIN": MANTA,
                "XDG_RUNTIME_DIR": str(self.place), **more}

    def objects(self) -> list[str]:
        """Of rclone, whose objects are files."""
        top = self.place / "buckets" / "bucket" / "runs"
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file())

    def kill(self) -> None:
        stop(self.server)

    def revive(self) -> None:
        self.server = start(self.name, self.port, self.place / "buckets")


@contextmanager
def store(name: str = "rclone") -> Iterator[Store]:
    place = Path(tempfile.mkdtemp(prefix="manta-runs-"))
    port = free_port()
    (place / "buckets" / "bucket").mkdir(parents=True)
    made = Store(name, place, port, start(name, port, place / "buckets"))
    try:
        if name == "moto":
            make_bucket(port, "bucket")
        yield made
    finally:
        made.kill()
        shutil.rmtree(place, ignore_errors=True)


def train(env: dict[str, str], *words: object, uri: str = URI,
          timeout: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TRAIN, uri, *map(str, words)], env=env, text=True, capture_output=True,
                          timeout=timeout)


def manta(env: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MANTA, *map(str, words)], env=env, text=True, capture_output=True,
                          timeout=100)


def trained(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """The name of its run, and the sum over the state."""
    assert done.returncode == 0, (done.stdout, done.stderr)
    directory, total = done.stdout.splitlines()[-1].split()
    return Path(directory).name, total


def expected(store: Store, steps: int) -> str:
    return trained(train(store.host("plain"), steps, uri=str(store.place / "plain")))[1]


def newest(env: dict[str, str], run: str) -> str:
    """The URI of its newest checkpoint; fewer are written than saved."""
    shown = manta(env, "ckpt", "ls", "--json", f"{URI}/{run}")
    assert shown.returncode == 0, shown.stderr
    return f"{URI}/{run}/checkpoints/{json.loads(shown.stdout)[-1]['name']}"


def check_run(name: str) -> None:
    """A run is stored whole; another host begins from its checkpoint, or asks for its results."""
    with store(name) as s:
        right = expected(s, 6)
        run, total = trained(train(s.host(), 6))
        assert total == right
        other = s.host("b")
        verified = manta(other, "ckpt", "verify", f"{URI}/{run}")
        assert verified.returncode == 0, verified.stderr
        done = train(other, 8, "from", newest(other, run))
        assert "from step 6" in done.stdout, (done.stdout, done.stderr)
        assert trained(done)[1] == expected(s, 8)
        again = train(other, 6, "resume", f"{URI}/{run}")  # it has finished
        assert trained(again) == (run, right) and "from step" not in again.stdout
        if name == "rclone":
            assert f"{run}/run.log" in s.objects()
            here = {p.name for p in (s.place / "a/s3/bucket/runs" / run / "checkpoints").iterdir()}
            left = {o.split("/")[2] for o in s.objects() if o.startswith(f"{run}/checkpoints/")}
            assert left == here
            assert 1 <= sum(name.isdigit() for name in here) <= 2  # retention removed the others
            assert any(name.startswith("random_") for name in here)


def test_a_run_is_stored_on_rclone() -> None:
    check_run("rclone")


def test_a_run_is_stored_on_moto() -> None:
    check_run("moto")


def test_a_killed_run_goes_on_elsewhere() -> None:
    with store() as s:
        right = expected(s, 12)
        killed = train(s.host(STEP_MS="30", STOP_AT="8"), 12)
        assert killed.returncode == -9, killed
        [run] = {o.split("/")[0] for o in s.objects()}
        by = time.monotonic() + 60  # the uploader ends by itself
        while not any(o.endswith("manifest.json") for o in s.objects()):
            assert time.monotonic() < by
            time.sleep(0.05)
        time.sleep(1)
        refused = manta(s.host("b"), "resume", f"{URI}/{run}")
        assert refused.returncode == 1 and "--trust" in refused.stderr, refused
        resumed = manta(s.host("b", WORKERS="3"), "resume", "--trust", f"{URI}/{run}")
        assert "from step" in resumed.stdout, (resumed.stdout, resumed.stderr)
        assert trained(resumed) == (run, right)
        # and what that one stored is what a third host finds
        assert trained(train(s.host("c"), 12, "resume", f"{URI}/{run}")) == (run, right)


def test_a_server_that_dies_does_not_stop_the_run() -> None:
    with store() as s:
        right = expected(s, 40)
        run = subprocess.Popen([TRAIN, URI, "40"], env=s.host(STEP_MS="100"), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not any(o.endswith("manifest.json") for o in s.objects()):
            assert run.poll() is None
            time.sleep(0.01)
        s.kill()
        before = s.objects()
        time.sleep(1.5)  # checkpoints come and go meanwhile
        s.revive()
        out, err = run.communicate(timeout=100)
        name, total = trained(subprocess.CompletedProcess([], run.returncode, out, err))
        assert total == right
        assert s.objects() != before
        assert manta(s.host("b"), "ckpt", "verify", f"{URI}/{name}").returncode == 0
        done = train(s.host("b"), 41, "from", newest(s.host("b"), name))
        assert "from step 40" in done.stdout, (done.stdout, done.stderr)


def test_a_server_that_stays_away_loses_nothing() -> None:
    with store() as s:
        env = s.host(STEP_MS="100", MANTA_UPLOAD_WAIT="1")
        run = subprocess.Popen([TRAIN, URI, "20"], env=env, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        while len(s.objects()) < 2:  # the first is that of the start, which needs its answer
            time.sleep(0.01)
        s.kill()
        out, err = run.communicate(timeout=100)
        name, total = trained(subprocess.CompletedProcess([], run.returncode, out, err))
        assert "is not complete after 1." in err and "manta upload" in err, err
        s.revive()
        directory = out.splitlines()[-1].split()[0]
        unfinished = len(s.objects())
        away = train(s.host(AWS_ENDPOINT_URL="http://127.0.0.1:9"), directory, uri="complete")
        assert away.returncode == 1 and away.stderr.startswith("EIO: "), away.stderr
        completed = train(s.host(), directory, uri="complete")  # manta_storage_complete
        assert completed.returncode == 0 and len(s.objects()) > unfinished, completed.stderr
        sent = manta(s.host(), "upload", directory)  # nothing is left for it
        assert sent.returncode == 0, sent.stderr
        fetched = manta(s.host("b"), "download", f"{URI}/{name}")
        assert fetched.returncode == 0, fetched.stderr
        assert manta(s.host("b"), "ckpt", "verify", fetched.stdout.strip()).returncode == 0
        assert trained(train(s.host("b"), 20, "resume", f"{URI}/{name}")) == (name, total)


def test_only_what_is_meant_for_a_store_is_completed() -> None:
    with store() as s:
        place = str(s.place / "plain")
        directory = train(s.host(), 1, uri=place).stdout.splitlines()[-1].split()[0]
        for path in (directory, f"{place}/none"):
            done = train(s.host(), path, uri="complete")
            assert done.returncode == 1 and done.stderr.startswith("ENOENT: "), done.stderr
            assert path in done.stderr, done.stderr
        assert not s.objects()


def test_mistakes_are_told_at_the_start() -> None:
    with store() as s:
        cases = [
            (s.host(AWS_SECRET_ACCESS_KEY="wrong"), URI, "EDENIED", "secret"),
            (s.host(), "s3://no-such-bucket/runs", "ENOENT", "there is no bucket"),
            (s.host(), "s3:///runs", "EINVAL", "has no bucket"),
            (s.host(), "https://host/runs", "EUNSUPPORTED", "nothing can be stored there"),
            (s.host(), "gs://bucket/runs", "EUNSUPPORTED", "s3://BUCKET/PREFIX"),
        ]
        for env, uri, status, says in cases:
            done = train(env, 1, uri=uri)
            assert done.returncode == 1 and done.stderr.startswith(status), (uri, done.stderr)
            assert says in done.stderr, (uri, done.stderr)
        assert not s.objects()
        nothing = train(s.host(), 1, "resume", f"{URI}/none")
        assert nothing.returncode == 1 and "there is nothing" in nothing.stderr, nothing.stderr


install()
main(globals(), sys.argv[3:])

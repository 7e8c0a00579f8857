# SPDX-License-Identifier: Apache-2.0
"""Runs and checkpoints under s3://, on a server that others wrote (tests/remote/servers.py)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import sgd
from manta.air import Checkpoint, Result, RunConfig, ScalingConfig, session
from manta.train import DataParallelTrainer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "remote"))
import servers  # noqa: E402

URI = "s3://bucket/runs"


class Store:
    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch):
        self.place, self.monkeypatch = place, monkeypatch
        (place / "bucket").mkdir(parents=True)
        self.port = servers.free_port()
        self.server = servers.start("rclone", self.port, place)
        for name, value in servers.environment(self.port).items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        self.host("a")

    def host(self, name: str) -> None:
        """From now on this is another host: it knows only what is stored."""
        self.monkeypatch.setenv("MANTA_STAGING", str(self.place.parent / f"staging-{name}"))

    def objects(self) -> list[str]:
        top = self.place / "bucket"
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file())


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    servers.install()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    made = Store(tmp_path / "buckets", monkeypatch)
    yield made
    servers.stop(made.server)


def counting(config: dict[str, Any]) -> None:
    found = session.get_checkpoint()
    start = found.to_dict()["step"] + 1 if found else 0
    for step in range(start, config["steps"]):
        session.report({"step": step, "from": start},
                       checkpoint=Checkpoint.from_dict({"step": step, "w": [1.5] * 4}))
        if step == config.get("fails"):
            raise RuntimeError("half-way")


def trainer(**config: Any) -> DataParallelTrainer:
    return DataParallelTrainer(counting, train_loop_config=config,
                               scaling_config=ScalingConfig(num_workers=1),
                               run_config=RunConfig(name="e", storage_path=URI, verbose=0))


def test_an_experiment_goes_on_elsewhere(store: Store) -> None:
    with pytest.raises(RuntimeError, match="half-way"):
        trainer(steps=6, fails=3).fit()
    assert "runs/e/trainer.pkl" in store.objects()
    store.host("b")
    assert DataParallelTrainer.can_restore(f"{URI}/e")
    assert not DataParallelTrainer.can_restore(f"{URI}/none")
    with pytest.raises(PermissionError, match="trust=True"):
        DataParallelTrainer.restore(f"{URI}/e")
    again = DataParallelTrainer.restore(f"{URI}/e", train_loop_config={"steps": 6}, trust=True)
    result = again.fit()
    assert result.metrics["step"] == 5 and result.metrics["from"] >= 1
    store.host("c")
    name = Path(result.path).name
    found = Result.from_path(f"{URI}/e/{name}")
    assert [row["step"] for row in found.rows] == [row["step"] for row in result.rows]
    assert found.checkpoint is not None and found.checkpoint.to_dict()["step"] == 5


def saving(config: dict[str, Any]) -> int:
    start = (sgd.load_checkpoint() or {"epoch": -1})["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        sgd.report(epoch=epoch)
        sgd.save_checkpoint(epoch=epoch)
        if epoch == config.get("fails"):
            raise RuntimeError("half-way")
    return start


def test_a_trainer_stores_its_runs(store: Store) -> None:
    with sgd.Trainer(num_workers=1, logdir=URI, name="plain", quiet=True) as t:
        with pytest.raises(RuntimeError, match="half-way"):
            t.run(saving, {"epochs": 5, "fails": 2})
        name = Path(str(t.latest_run_dir)).name
    store.host("b")
    with pytest.raises(PermissionError, match="downloaded"):
        sgd.Trainer.restore(f"{URI}/{name}")
    with sgd.Trainer.restore(f"{URI}/{name}", trust=True, quiet=True) as t:
        [start] = t.run(saving, {"epochs": 5})
    assert start >= 1
    store.host("c")
    newest = sorted(o for o in store.objects() if o.endswith("manifest.json"))[-1]
    with sgd.Trainer(num_workers=1, logdir=URI, quiet=True) as t:
        given = f"s3://bucket/{Path(newest).parent}"
        assert t.run(saving, {"epochs": 6}, checkpoint=given, trust=True) == [5]


def test_checkpoints_have_uris(store: Store, tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "below").mkdir(parents=True)
    (files / "below" / "x.bin").write_bytes(b"x" * 1000)
    assert Checkpoint(files).to_uri(f"{URI}/files/") == f"{URI}/files"
    back = Checkpoint.from_uri(f"{URI}/files")
    assert (Path(back.path) / "below" / "x.bin").read_bytes() == b"x" * 1000
    Checkpoint.from_dict({"epoch": 3}).to_uri(f"{URI}/dict")
    assert Checkpoint.from_uri(f"{URI}/dict").to_dict()["epoch"] == 3
    with pytest.raises(FileNotFoundError, match="there is nothing"):
        Checkpoint.from_uri(f"{URI}/none")


def test_mistakes_are_told_at_the_start(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, says in (("gs://b/x", "s3://BUCKET/PREFIX"), ("https://h/x", "nothing can be stored"),
                       ("s3:///x", "has no bucket")):
        with pytest.raises(ValueError, match=says):
            RunConfig(storage_path=path)
        with pytest.raises(ValueError, match=says):
            sgd.Trainer(logdir=path)
        with pytest.raises(ValueError, match=says):
            Checkpoint.from_dict({}).to_uri(path)
    none = RunConfig(name="e", storage_path="s3://no-such-bucket/x", verbose=0)
    with pytest.raises(FileNotFoundError, match="there is no bucket"):
        DataParallelTrainer(counting, train_loop_config={"steps": 1}, run_config=none).fit()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(OSError, match="the secret is not that of the key"):
        trainer(steps=1).fit()
    with sgd.Trainer(num_workers=1, logdir=URI, quiet=True) as t:
        with pytest.raises(OSError, match="the secret is not that of the key"):
            t.run(saving, {"epochs": 1})


def test_the_page_says_what_is(store: Store) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "storage.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", page, re.S)
    program = store.place.parent / "page.py"
    program.write_text(block)
    done = subprocess.run([sys.executable, program], text=True, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr
    assert any(o.startswith("models/best/") for o in store.objects())

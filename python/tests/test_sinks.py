# SPDX-License-Identifier: Apache-2.0
"""Reports as files: JSON, CSV and TensorBoard's, by callbacks over libmanta's sinks. Whatever is
killed, each iteration is there once."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from children import child
from manta import sgd
from manta.sgd import CSVCallback, JsonCallback, SGDCallback, TensorboardCallback, Trainer

ROOT = Path(__file__).parents[2]


def train(config: dict[str, Any]) -> None:
    import os as system
    import time as clock
    start = (sgd.load_checkpoint() or {"i": 0})["i"]
    for i in range(start, config.get("n", 10)):
        if config.get("die") == i and start == 0 and sgd.world_rank() == sgd.world_size() - 1:
            while not system.path.exists(config["saved"]):
                clock.sleep(0.001)
            system.kill(system.getpid(), 9)
        clock.sleep(config.get("pause", 0))
        sgd.report(loss=1 / (i + 1), rank=sgd.world_rank(), deep={"a": i, "b": {"c": True}},
                   weights=[0.5, 1.5, float(i)], word="x,y")
        sgd.save_checkpoint(i=i + 1)
        if "saved" in config and i == config["die"] - 2 and sgd.world_rank() == 0:
            open(config["saved"], "w").close()


def iterations(path: Path, worker: int = 0) -> list[int]:
    return [rows[worker]["_training_iteration"] for rows in json.loads(path.read_text())]


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as f:
        return list(csv.DictReader(f))


READ = """
import json, logging, sys
logging.disable()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
kinds = ("scalars", "histograms", "images", "tensors")
a = EventAccumulator(sys.argv[1], size_guidance=dict.fromkeys(kinds, 0))
a.Reload()
tags = a.Tags()

def read(kind, get, form):
    return {t: [form(x) for x in get(t)] for t in tags[kind] if not t.startswith("_hparams_")}

def hparams(tag):
    found = a.summary_metadata.get("_hparams_/" + tag)
    return found and getattr(HParamsPluginData.FromString(found.plugin_data.content), tag)

def values(info):
    return info and {k: getattr(v, v.WhichOneof("kind")) for k, v in info.hparams.items()}

end = hparams("session_end_info")
print(json.dumps({
    "scalars": read("scalars", a.Scalars, lambda x: [x.step, x.value]),
    "histograms": read("histograms", a.Histograms,
                       lambda x: [x.step, x.histogram_value.num, x.histogram_value.max]),
    "images": read("images", a.Images, lambda x: [x.width, x.height]),
    "texts": read("tensors", a.Tensors, lambda x: x.tensor_proto.string_val[0].decode()),
    "hparams": values(hparams("session_start_info")), "status": end and end.status}))
"""


@pytest.fixture(scope="session")
def board() -> Any:
    """What the real TensorBoard reads in a directory."""
    subprocess.run([ROOT / "scripts" / "tensorboard"], check=True, timeout=280)

    def read(path: Path) -> dict[str, Any]:
        done = subprocess.run([ROOT / "build/tensorboard/bin/python", "-c", READ, path], timeout=50,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))
    return read


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.deadline(300)
def test_a_killed_worker_leaves_each_iteration_once(tmp_path: Path, board: Any) -> None:
    """Rows after the checkpoint are taken out again; TensorBoard is told to drop them."""
    outputs = [JsonCallback(), CSVCallback(), TensorboardCallback()]
    config = {"n": 12, "die": 7, "lr": 0.1, "saved": str(tmp_path / "saved")}
    with Trainer(None, num_workers=2, callbacks=outputs) as t:
        t.run(train, config)
        there = t.latest_run_dir
    assert there is not None
    assert iterations(there / "results.json") == list(range(1, 13))
    live = [json.loads(line) for line in (there / "results.jsonl").read_text().splitlines()]
    assert live == json.loads((there / "results.json").read_text())
    assert json.loads((there / "params.json").read_text()) == config
    rows = lines(there / "progress.csv")
    assert [int(r["_training_iteration"]) for r in rows] == list(range(1, 13))
    assert rows[3]["deep/b/c"] == "true" and rows[3]["word"] == "x,y" and rows[3]["deep/a"] == "3"
    seen = board(there)
    assert [step for step, _ in seen["scalars"]["loss"]] == list(range(1, 13))
    assert seen["scalars"]["deep/a"][-1] == [12, 11.0]
    assert seen["histograms"]["weights"][-1] == [12, 3.0, 11.0]
    assert "| lr | 0.1 |" in seen["texts"]["config"][0]
    assert seen["hparams"] == config and seen["status"] == 1
    assert "word" not in seen["scalars"] and "_training_iteration" not in seen["scalars"]


def test_workers_are_chosen_and_put_together(tmp_path: Path) -> None:
    outputs = [JsonCallback(tmp_path, "all.json", None), JsonCallback(tmp_path, "one.json", 1),
               JsonCallback(tmp_path, "two.json", [2, 0]),
               JsonCallback(tmp_path, "mean.json", "all", aggregate="mean"),
               JsonCallback(tmp_path, "max.json", "all", aggregate="max"),
               CSVCallback(tmp_path / "made", workers_to_log=range(3))]
    with Trainer(None, num_workers=3) as t:
        t.run(train, {"n": 4}, callbacks=outputs)

    def ranks(name: str) -> list[Any]:
        return [[row["rank"] for row in rows] for rows in json.loads((tmp_path / name).read_text())]
    assert ranks("all.json") == [[0, 1, 2]] * 4
    assert ranks("one.json") == [[1]] * 4 and ranks("two.json") == [[0, 2]] * 4
    assert ranks("mean.json") == [[1.0]] * 4 and ranks("max.json") == [[2]] * 4
    assert [r["_rank"] for r in lines(tmp_path / "made" / "progress.csv")] == ["0", "1", "2"] * 4
    assert outputs[0].log_path == tmp_path / "all.json" and outputs[5].logdir == tmp_path / "made"


def test_values_of_all_kinds(tmp_path: Path, board: Any,
                             capfd: pytest.CaptureFixture[str]) -> None:
    png = (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02\0\0\0" + b"\0" * 8)

    def odd() -> None:
        sgd.report(loss=math.nan, **{"a/b": 1, "c\nd": 2.5, "é": math.inf, "": 0, "\udcff": 7},
                   some={1, 2}, image=png)
        sgd.report(loss=1.0, late=3)

    with Trainer(None, callbacks=[JsonCallback(tmp_path), CSVCallback(tmp_path),
                                  TensorboardCallback(tmp_path)]) as t:
        t.run(odd)
    first, second = (rows[0] for rows in json.loads((tmp_path / "results.json").read_text()))
    assert first["loss"] is None and first["é"] is None and first["c\nd"] == 2.5
    assert first["some"] == "{1, 2}" and first["\\udcff"] == 7
    assert capfd.readouterr().err.count("is NaN or infinite") == 1
    rows = lines(tmp_path / "progress.csv")
    assert rows[0]["loss"] == "nan" and rows[0]["é"] == "inf" and rows[0]["late"] == ""
    assert rows[0]["c\nd"] == "2.5" and rows[1]["late"] == "3"
    seen = board(tmp_path)
    assert math.isnan(seen["scalars"]["loss"][0][1]) and seen["scalars"]["a/b"] == [[1, 1.0]]
    assert seen["images"] == {"image": [[2, 3]]} and second["late"] == 3


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_killed_process_of_sinks_doubles_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    killed = []

    def kill() -> None:
        for _ in range(2):
            while (pid := child("manta-sink")) is None or pid in killed:
                time.sleep(0.01)
            time.sleep(0.15)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    with Trainer(None, callbacks=[JsonCallback(), CSVCallback(), TensorboardCallback()]) as t:
        t.run(train, {"n": 200, "pause": 0.005})
        there = t.latest_run_dir
    thread.join()
    assert there is not None and len(killed) == 2
    assert "the process of the sinks died" in capfd.readouterr().err
    assert iterations(there / "results.json") == list(range(1, 201))
    assert [int(r["_training_iteration"]) for r in lines(there / "progress.csv")] == list(
        range(1, 201))
    assert len(list(there.glob("events.out.tfevents.*"))) == 1
    assert child("manta-sink") is None


PROGRAM = """
import sys
from manta import sgd
from manta.sgd import CSVCallback, JsonCallback, Trainer
def train(config):
    start = (sgd.load_checkpoint() or {"i": 0})["i"]
    for i in range(start, 60):
        if i == 30 and start == 0:
            sgd.heartbeat()
            import os, signal
            os.kill(config["driver"], signal.SIGKILL)
        sgd.report(i=i)
        if i % 10 == 9:
            sgd.save_checkpoint(i=i + 1)
if __name__ == "__main__":
    import os
    make = Trainer.restore if len(sys.argv) > 1 else Trainer
    with make(*sys.argv[1:] or (None,), callbacks=[JsonCallback(), CSVCallback()]) as t:
        print(t.run(train, {"driver": os.getpid()}), t.latest_run_dir)
"""


def test_a_resumed_run_goes_on_in_the_same_files(tmp_path: Path) -> None:
    script, results = tmp_path / "main.py", tmp_path / "results"
    script.write_text(PROGRAM)
    there = {**os.environ, "MANTA_RESULTS": str(results)}
    first = subprocess.run([sys.executable, script], env=there, timeout=50)
    assert first.returncode == -signal.SIGKILL
    (run,) = results.iterdir()
    done = subprocess.run([sys.executable, script, run], env=there, timeout=50, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert list(results.iterdir()) == [run]
    assert iterations(run / "results.json") == list(range(1, 61))
    assert [int(r["i"]) for r in lines(run / "progress.csv")] == list(range(60))


def test_a_directory_that_cannot_be_written_is_a_warning(
        capfd: pytest.CaptureFixture[str]) -> None:
    with Trainer(None) as t:
        t.run(train, {"n": 3}, callbacks=[JsonCallback("/proc/none")])
    said = capfd.readouterr().err
    assert "sink json" in said and "/proc/none" in said and "did not get all" in said


FULL = """
import sys
from manta import sgd
from manta.sgd import CSVCallback, JsonCallback, Trainer
def train():
    for i in range(20000):
        sgd.report(loss=1 / (i + 1), text="x" * 200)
with Trainer(None, callbacks=[JsonCallback(sys.argv[1]), CSVCallback(sys.argv[1])]) as t:
    t.run(train)
    print(t.latest_run_dir)
"""


def test_a_full_disk_is_told_of_once(tmp_path: Path) -> None:
    script, full = tmp_path / "main.py", tmp_path / "full"
    script.write_text(FULL)
    full.mkdir()
    own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
           'mount -t tmpfs -o size=2m none "$1" && shift && exec "$@"', "sh", str(full)]
    if subprocess.run([*own, "true"], capture_output=True).returncode != 0:
        pytest.skip("no file systems of one's own here")
    done = subprocess.run([*own, sys.executable, script, full], timeout=50, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No space left on device; trying again") == 2, done.stderr
    assert "works again" not in done.stderr and done.stderr.count("did not get all") == 2
    run = Path(done.stdout.strip())  # its directory is elsewhere, and has all of it
    written = subprocess.run([str(Path(sys.executable).parent / "manta"), "sink", run], timeout=50)
    assert written.returncode == 0
    assert iterations(full / "results.json") == list(range(1, 20001))


@pytest.mark.parametrize(("make", "error", "word"), [
    (lambda: JsonCallback(3), TypeError, "logdir"),
    (lambda: CSVCallback(workers_to_log=True), TypeError, "workers_to_log"),
    (lambda: CSVCallback(workers_to_log=[0.5]), TypeError, "workers_to_log"),
])
def test_wrong_arguments_are_refused(make: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        make()


@pytest.mark.parametrize(("callbacks", "word"), [
    ([JsonCallback(aggregate="median")], "median"),  # type: ignore[arg-type]
    ([JsonCallback(workers_to_log=-1)], "workers to log"),
    ([JsonCallback(filename="a/b")], "filename"),
    ([JsonCallback(), JsonCallback(workers_to_log=1)], "same file"),
])
def test_wrong_sinks_are_refused_before_the_run(callbacks: list[Any], word: str) -> None:
    with Trainer(None) as t, pytest.raises(ValueError, match=word):
        t.run(train, {"n": 1}, callbacks=callbacks)


# --- callbacks of the user's ----------------------------------------------------------------------


class Halved(JsonCallback):
    """Writes something else than what was reported."""

    def handle_result(self, results: list[Any], **info: Any) -> None:
        super().handle_result([r and {"half": r["loss"] / 2,
                                      "_training_iteration": r["_training_iteration"]}
                               for r in results], **info)


def test_a_subclass_decides_what_is_written(tmp_path: Path) -> None:
    halved = Halved(filename="half.json")
    with Trainer(None, num_workers=2, callbacks=[JsonCallback()]) as t:
        t.run(train, {"n": 6, "die": 4, "saved": str(tmp_path / "saved")},
              callbacks=[halved])
        there = t.latest_run_dir
    assert there is not None
    assert iterations(there / "half.json") == iterations(there / "results.json") == list(
        range(1, 7))
    assert json.loads((there / "half.json").read_text())[1][0]["half"] == 0.25
    assert halved.log_path == there / "half.json"


def test_a_callback_can_be_called_by_hand(tmp_path: Path) -> None:
    json_, csv_ = JsonCallback(workers_to_log=None), CSVCallback(tmp_path / "elsewhere")
    for callback in (json_, csv_):
        callback.start_training(str(tmp_path), {"lr": object()}, 2)
        for i in range(3):
            callback.handle_result([{"a": i}, {"a": 10 * i, "b": object}])
        callback.finish_training()
        with pytest.raises(RuntimeError, match="start_training"):
            callback.handle_result([{"a": 1}])
    assert [[r["a"] for r in rows] for rows in json.loads(
        (tmp_path / "results.json").read_text())] == [[0, 0], [1, 10], [2, 20]]
    assert [r["a"] for r in lines(tmp_path / "elsewhere" / "progress.csv")] == ["0", "1", "2"]
    assert "object object" in (tmp_path / "params.json").read_text()


class Failing(SGDCallback):
    def handle_result(self, results: list[Any], **info: Any) -> None:
        raise KeyError("not there")


def test_a_callback_that_raises_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    failing = Failing()
    with Trainer(None) as t:
        t.run(train, {"n": 2}, callbacks=[failing])
        said = capfd.readouterr().err
        assert said.count("Failing.handle_result failed") == 2
        assert "KeyError: 'not there'" in said and "Traceback" in said
        failing.on_error = "raise"
        with pytest.raises(KeyError, match="not there"):
            t.run(train, {"n": 2}, callbacks=[failing])

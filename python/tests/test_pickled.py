# SPDX-License-Identifier: Apache-2.0
"""Pickles that stay on disk: what of manta they name, and that those of earlier versions load."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import subprocess
import sys
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

torch = pytest.importorskip("torch")

import manta  # noqa: E402
from manta import _pickled, _state, sgd, train  # noqa: E402
from manta._front.run import Reports  # noqa: E402
from manta._runtime import pickling  # noqa: E402
from manta._state import packing  # noqa: E402
from test_state import Kept, kept  # noqa: E402


def named(data: bytes) -> set[str]:
    """The modules of manta that pickles one after the other name."""
    file, found = io.BytesIO(data), set()
    while file.read(1) not in (b"", b"\0"):  # what follows the last is zeros
        file.seek(-1, io.SEEK_CUR)
        found |= {arg for _, arg, _ in pickletools.genops(file)
                  if isinstance(arg, str) and arg.partition(".")[0] == "manta"}
    return found


def stream(checkpoint: Any) -> bytes:
    return bytes(next(row[3] for row in checkpoint.rows if row[0].endswith("_pickle")))


class Cut:
    """In the place of a DTensor, which needs a process group: what one becomes in a pickle."""

    def __init__(self, t: Any):
        self.t = t

    def __reduce__(self) -> Any:
        from torch.distributed.tensor import Replicate
        mesh = "cpu", (0,), (1,), None
        return _pickled.piece, ("w", self.t, mesh, (Replicate(),), tuple(self.t.shape),
                                tuple(self.t.stride()), False, False)


def state() -> dict[str, Any]:
    return {"w": torch.arange(6.0), "p": torch.nn.Parameter(torch.ones(2)), "epoch": 3,
            "model": torch.nn.Linear(2, 2)}


def sharded(obj: Any) -> Any:
    """The checkpoint of a world of one rank that saved its part."""
    rows, value, keep = _state.pack(obj, True)
    whole = Kept(rows, {"sharded": 1, "parts": [value]})
    whole.rows = [(f"rank0.{name}", *rest) for name, *rest in whole.rows]
    return whole


def test_a_checkpoint_names_one_module() -> None:
    assert named(stream(kept(state()))) == {"manta._pickled"}
    assert named(stream(sharded({"w": Cut(torch.ones(3))}))) == {"manta._pickled"}


class Odd(Exception):
    """pickle's own way would call this again."""

    def __init__(self, a: int, b: int):
        super().__init__(f"{a} {b}")


def test_results_and_rows_name_one_module() -> None:
    data = pickling.dumps_unwrapped([math, Odd(1, 2), torch.nn.Linear(1, 1), {"loss": 0.5}])
    assert named(data) == {"manta._pickled"}
    found = pickle.loads(data)
    assert found[0] is math and type(found[1]) is Odd and found[1].args == ("1 2",)


KEPT = [manta.TrainingFailed("a"), manta.CollectiveTimeout("a"), sgd.BackendConfig(),
        sgd.CheckpointStrategy(2), sgd.Host("a"), sgd.PrintCallback(),
        sgd.ProgressCallback(), sgd.SGDCallback(),
        sgd.CSVCallback(), sgd.JsonCallback("a"), sgd.TensorboardCallback(),
        sgd.MlflowCallback("http://a"), sgd.WandbCallback("a"),
        sgd.SessionError("a"), sgd.TorchConfig("gloo"), sgd.Backend(), Reports([{"a": 1}]),
        train.Checkpoint.from_dict({"a": 1}), train.CheckpointConfig(2), train.FailureConfig(3),
        train.DataConfig(["train"]),
        train.Result({"loss": 1.0}), train.RunConfig("a"), train.ScalingConfig(num_workers=2),
        train.SyncConfig(), train.TensorflowConfig(), train.HorovodConfig(),
        train.TrainingFailedError("a"),
        manta.train.torch.TorchCheckpoint.from_state_dict({"w": 1}), manta.put(3),
        manta.AverageMeter(), manta.AverageMeterCollection(),
        manta.TensorflowCheckpoint.from_dict({"a": 1}), manta.data.col("a") > 1,
        manta.data.Schema([("a", "i64")]), manta.tune.uniform(0, 1), manta.tune.TuneConfig(),
        manta.tune.PlacementGroupFactory([{"CPU": 1}]), manta.tune.TuneError("a")]


@pytest.mark.parametrize("o", KEPT, ids=lambda o: type(o).__name__)
def test_what_users_keep_has_a_name_that_stays(o: Any) -> None:
    """Wherever it is defined, and whatever of manta is imported where it is read."""
    for data in (pickle.dumps(o), cloudpickle.dumps(o)):
        assert named(data) == {"manta"}
        assert type(pickle.loads(data)) is type(o)
        code = f"import pickle; print(type(pickle.loads({data!r})).__name__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=50)
        assert done.stdout == f"{type(o).__name__}\n", done.stderr


def test_all_such_classes_are_known() -> None:
    """Those that a front shows, but for those that are bound to processes."""
    kept = {type(o).__name__ for o in KEPT}
    shown = {o.__name__ for front in (sgd, train) for name in front.__all__
             if isinstance(o := getattr(front, name), type)}
    assert shown - {"DataParallelTrainer", "Trainer", "WorkerGroup"} <= kept
    assert kept == {name for name in manta._DEFINED_IN if isinstance(getattr(manta, name), type)}


def as_earlier(monkeypatch: pytest.MonkeyPatch, word: str, module: str) -> None:
    """From now on it is pickled as the version did that had it in that module."""
    monkeypatch.setattr(getattr(_pickled, word), "__module__", module)
    place = sys.modules.get(module) or ModuleType(module)
    monkeypatch.setitem(sys.modules, module, place)
    monkeypatch.setattr(place, word, getattr(_pickled, word), raising=False)


def test_tensors_of_an_earlier_version_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        as_earlier(earlier, "tensor", "manta._state.packing")
        old = kept(state())
    assert named(stream(old)) == {"manta._state.packing"} and not hasattr(packing, "tensor")
    found = _state.restore(old)
    assert torch.equal(found["w"], torch.arange(6.0)) and found["epoch"] == 3
    assert type(found["p"]) is torch.nn.Parameter and found["model"](torch.ones(1, 2)).shape[1] == 2


def test_pieces_of_an_earlier_version_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        as_earlier(earlier, "tensor", "manta._state.packing")
        as_earlier(earlier, "piece", "manta._state.pieces")
        old = sharded({"w": Cut(torch.arange(4.0))})
    assert named(stream(old)) == {"manta._state.packing", "manta._state.pieces"}
    assert "manta._state.pieces" not in sys.modules
    assert torch.equal(_state.restore(old)[0]["w"], torch.arange(4.0))


@pytest.mark.parametrize("word", [_pickled.tensor, _pickled.piece])
def test_a_checkpoint_is_not_for_pickle_alone(word: Any) -> None:
    with pytest.raises(pickle.UnpicklingError, match="a checkpoint of manta: open it with manta"):
        pickle.loads(pickle.dumps(word))(1, 2)

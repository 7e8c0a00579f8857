# SPDX-License-Identifier: Apache-2.0
"""Checkpoint in all its forms: dict, directory, bytes, URI, and what is believed of them."""

from __future__ import annotations

import errno
import io
import os
import pickle
import tempfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from manta import air, train
from manta._front.fit import files
from manta.air import Checkpoint


class Own:
    """Of the user's own; reading it runs code."""

    def __init__(self, n: int):
        self.n = n

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Own) and self.n == other.n


PLAIN = {"epoch": 3, "names": ["a", "b"], "nested": {"x": (1, 2.5, None, True)}, "big": b"x" * 5000,
         "order": OrderedDict(a=1), "set": {1, 2}}


def test_a_dict() -> None:
    c = Checkpoint.from_dict(PLAIN)
    assert c.to_dict() == PLAIN and c.to_dict() is not PLAIN
    assert c.get_internal_representation() == ("data_dict", PLAIN)
    assert c.uri is None and "epoch" in repr(c)
    with pytest.raises(AttributeError, match="to_directory"):
        c.path
    with pytest.raises(TypeError, match="takes a dict"):
        Checkpoint.from_dict([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"hint: Checkpoint.from_dict"):
        Checkpoint({"a": 1})  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(c)).to_dict() == PLAIN


def test_a_dict_as_everything_else(tmp_path: Path) -> None:
    """And back; plain values need nobody's word."""
    c = Checkpoint.from_dict(PLAIN)
    place = c.to_directory(tmp_path / "a" / "b")
    assert place == str(tmp_path / "a" / "b")
    assert sorted(os.listdir(place)) == ["manifest.json", "state.safetensors", "value.msgpack"]
    assert Checkpoint.from_directory(place).to_dict() == PLAIN
    Checkpoint.from_dict({"other": 1}).to_directory(place)  # takes its place
    assert Checkpoint(place).to_dict() == {"other": 1}
    c.to_directory(place)
    assert Checkpoint(place).to_directory(place) == place
    assert Checkpoint(place).path == place
    assert Checkpoint.from_bytes(c.to_bytes()).to_dict() == PLAIN
    uri = c.to_uri(f"file://{tmp_path}/uri")
    assert uri == f"file://{tmp_path}/uri"
    again = Checkpoint.from_uri(uri)
    assert again.to_dict() == PLAIN and again.uri == uri
    with c.as_directory() as made:
        assert Checkpoint(made).to_dict() == PLAIN
    assert not os.path.exists(made)
    with Checkpoint(place).as_directory() as same:
        assert same == place
    assert os.path.exists(place)
    other = Checkpoint(place).to_directory()  # a temporary one
    assert other.startswith(tempfile.gettempdir()) and Checkpoint(other).to_dict() == PLAIN
    assert pickle.loads(pickle.dumps(Checkpoint(place))).to_dict() == PLAIN


def test_tensors_and_arrays(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import numpy
    model = torch.nn.Linear(3, 2)
    data = {"state": model.state_dict(), "array": numpy.arange(6.0).reshape(2, 3),
            "scalar": numpy.float64(2.5), "half": torch.ones(4, dtype=torch.bfloat16)}
    c = Checkpoint.from_dict(data)
    for found in (Checkpoint(c.to_directory(tmp_path / "c")), Checkpoint.from_bytes(c.to_bytes())):
        again = found.to_dict()
        assert type(again["state"]) is OrderedDict
        assert torch.equal(again["state"]["weight"], model.weight)
        assert again["array"].tolist() == data["array"].tolist()
        assert again["scalar"] == 2.5 and again["half"].dtype is torch.bfloat16
    assert b'"state.weight"' in (tmp_path / "c" / "state.safetensors").read_bytes()


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "own" / "sub").mkdir(parents=True)
    (tmp_path / "own" / "model.txt").write_text("weights")
    (tmp_path / "own" / "sub" / "more").write_text("more")
    c = Checkpoint.from_directory(tmp_path / "own")
    assert c.path == str(tmp_path / "own") and c.get_internal_representation() == ("local_path",
                                                                                   c.path)
    copies = [Path(c.to_directory(tmp_path / "copy")),
              Path(Checkpoint.from_bytes(c.to_bytes()).to_directory(tmp_path / "bytes")),
              Path(Checkpoint.from_dict(c.to_dict()).to_directory(tmp_path / "dict"))]
    for copy in copies:
        assert (copy / "model.txt").read_text() == "weights"
        assert (copy / "sub" / "more").read_text() == "more"
    assert (tmp_path / "own" / "model.txt").exists()
    with pytest.raises(FileNotFoundError, match="is gone"):
        Checkpoint(tmp_path / "nothing").to_directory()
    with pytest.raises(ValueError, match="not the bytes of a checkpoint"):
        Checkpoint.from_bytes(b"nonsense")


def test_bytes_reach_nothing_outside(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../escaped", "x")
        archive.writestr(f"{tmp_path}/absolute", "x")
    found = Path(Checkpoint.from_bytes(out.getvalue()).to_directory(tmp_path / "inside"))
    assert sorted(p.name for p in found.rglob("*") if p.is_file()) == ["absolute", "escaped"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inside"]


def test_metadata(tmp_path: Path) -> None:
    for c in (Checkpoint(tmp_path), Checkpoint.from_dict({"a": 1})):
        assert c.get_metadata() == {}
        c.set_metadata({"lr": 0.1})
        c.update_metadata({"by": ["me"]})
        assert c.get_metadata() == {"lr": 0.1, "by": ["me"]}
        c.set_metadata({})
        assert c.get_metadata() == {}
        with pytest.raises(TypeError):
            c.set_metadata({"x": object()})
    assert Checkpoint.from_dict({"_preprocessor": 5}).get_preprocessor() == 5
    assert Checkpoint(tmp_path).get_preprocessor() is None


@pytest.mark.parametrize("uri", ["gs://bucket/x", "file://host/x", "https://host/x"])
def test_other_uris_are_refused(uri: str) -> None:
    says = "s3://" if uri[0] != "f" else "must be a path of this host"
    for call in (Checkpoint.from_uri, Checkpoint.from_dict({}).to_uri,
                 lambda u: air.RunConfig(storage_path=u)):
        with pytest.raises(ValueError, match=says):
            call(uri)
    with pytest.raises(ValueError, match="hint: Checkpoint.from_uri"):
        Checkpoint("s3://bucket/x")


# --- trust ----------------------------------------------------------------------------------------


class Boom:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_nothing_of_a_stranger_is_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    c = Checkpoint.from_dict({"boom": Boom(mark), "own": Own(3)})
    place, data = c.to_directory(tmp_path / "c"), c.to_bytes()
    assert not mark.exists()
    for found in (Checkpoint(place), Checkpoint.from_directory(place), Checkpoint.from_uri(place),
                  Checkpoint.from_bytes(data)):
        with pytest.raises(PermissionError, match="trust=True"):
            found.to_dict()
        assert not mark.exists()
    assert set(Checkpoint(place, trust=True).to_dict()) == {"boom", "own"}
    assert mark.is_dir()  # what the others were kept from
    for found in (Checkpoint.from_directory(place, trust=True),
                  Checkpoint.from_bytes(data, trust=True)):
        with pytest.raises(FileExistsError):
            found.to_dict()
    fine = Checkpoint(Checkpoint.from_dict({"own": Own(3)}).to_directory(), trust=True)
    assert fine.to_dict() == {"own": Own(3)}


# --- files ----------------------------------------------------------------------------------------


def tree(at: Path) -> Path:
    (at / "sub").mkdir(parents=True)
    (at / "sub" / "a").write_text("a")
    (at / "b").write_text("b")
    (at / "link").symlink_to("b")
    return at


def read(at: Path) -> dict[str, str]:
    return {str(p.relative_to(at)): p.read_text() for p in at.rglob("*") if p.is_file()}


def test_moving_leaves_an_empty_directory(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    source.chmod(0o700)
    inode = (source / "b").stat().st_ino
    files.move(source, tmp_path / "to")
    assert not list(source.iterdir()) and source.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "to" / "b").stat().st_ino == inode
    more = tree(tmp_path / "more")
    (more / "sub" / "c").write_text("c")
    files.move(more, tmp_path / "to")  # beside what is there
    assert read(tmp_path / "to") == {"sub/a": "a", "sub/c": "c", "b": "b", "link": "b"}
    assert not list(more.iterdir())


def test_another_file_system_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(*paths: Any) -> None:
        raise OSError(errno.EXDEV, "cross-device")
    source = tree(tmp_path / "source")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        files.move(source, tmp_path / "to")
    assert read(source) == read(tmp_path / "to")
    assert (tmp_path / "to" / "link").is_symlink()


def test_files_share_their_blocks_where_that_is_possible(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ioctl(to: int, request: int, source: int) -> None:
        asked.append(request)
        os.write(to, os.read(source, 100).upper())
    source = tree(tmp_path / "source")
    with monkeypatch.context() as patch:
        patch.setattr(files.fcntl, "ioctl", ioctl)
        files.clone(source, tmp_path / "shared")
    assert read(tmp_path / "shared") == {"sub/a": "A", "b": "B", "link": "B"}
    assert asked == [0x40049409] * 2
    files.clone(source, tmp_path / "real")  # shared or copied, whatever this one can do
    assert read(tmp_path / "real") == read(source)


def test_what_counts_as_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert files.is_temporary(tmp_path / "x") and not files.is_temporary(tmp_path)
    assert not files.is_temporary(Path.home())


# --- torch ----------------------------------------------------------------------------------------


def test_a_model_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from manta.train.torch import TorchCheckpoint
    model = torch.nn.Linear(2, 1)
    weights = {f"module.{name}": value for name, value in model.state_dict().items()}
    saved = TorchCheckpoint.from_state_dict(weights, preprocessor=4)
    other = torch.nn.Linear(2, 1)
    assert saved.get_model(other) is other and torch.equal(other.weight, model.weight)
    assert saved.get_preprocessor() == 4
    with pytest.raises(ValueError, match="hint: get_model"):
        saved.get_model()
    whole = TorchCheckpoint.from_model(model)
    assert torch.equal(whole.get_model().weight, model.weight)
    place = whole.to_directory(tmp_path / "c")
    again = TorchCheckpoint.from_checkpoint(train.Checkpoint(place, trust=True))
    assert torch.equal(again.get_model().weight, model.weight)
    with pytest.raises(ValueError, match="has no entry 'model', but x"):
        TorchCheckpoint.from_dict({"x": 1}).get_model()

# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of a stranger runs nothing, whatever it holds: not where it is looked at, not in the
workers."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manta import _manta, _state, sgd
from manta.sgd import Trainer

_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def digest(data: bytes) -> str:
    return f"{_xxhash.XXH3_64bits(data, len(data)):016x}"


def packed(o: Any) -> bytes:
    """As much of MessagePack as is needed."""
    if isinstance(o, int):
        return b"\xd3" + struct.pack(">q", o)
    if isinstance(o, bytes):
        return b"\xc6" + struct.pack(">I", len(o)) + o
    if isinstance(o, str):
        return b"\xdb" + struct.pack(">I", len(o.encode())) + o.encode()
    if isinstance(o, list):
        return b"\xdd" + struct.pack(">I", len(o)) + b"".join(map(packed, o))
    return b"\xdf" + struct.pack(">I", len(o)) + b"".join(packed(x) for p in o.items() for x in p)


def write_checkpoint(path: Path, value: Any) -> Path:
    """One with valid checksums, as anybody can make it."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    files = {"state.safetensors": struct.pack("<Q", len(header)) + header + bytes(4),
             "value.msgpack": packed(value)}
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    listed = [{"name": n, "bytes": len(d), "hash": digest(d)} for n, d in files.items()]
    manifest = {"manta": 1, "name": path.name, "run": "0123456789abcdef", "attempt": 0, "rank": 0,
                "seq": "0000000000000002", "iteration": 1, "wall_ns": "1700000000000000000",
                "world": 1, "score": None, "bytes": sum(len(d) for d in files.values()),
                "files": listed}
    body = json.dumps(manifest, separators=(",", ":"))[:-1]
    (path / "manifest.json").write_text(f'{body},"check":"{digest(body.encode())}"}}\n')
    return path


class Boom:
    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def hostile(mark: Path) -> dict[str, Any]:
    """What a value that was pickled looks like."""
    return {"$py": pickle.dumps(Boom(mark)), "$repr": "x"}


SHAPES = ["itself", "inside", "of a part"]


def shaped(shape: str, mark: Path) -> Any:
    evil = hostile(mark)
    if shape == "itself":
        return evil
    return {"a": [evil]} if shape == "inside" else {"sharded": 1, "parts": [evil]}


@pytest.mark.parametrize("shape", SHAPES)
def test_looking_at_a_checkpoint_unpickles_nothing(tmp_path: Path, shape: str) -> None:
    mark = tmp_path / "ran"
    path = write_checkpoint(tmp_path / "000001", shaped(shape, mark))
    assert not _state.is_pickled(path)
    value = _manta.open_checkpoint(str(path)).value()
    assert not mark.exists()
    assert "$py" in str(value)
    assert _state.load_dir(path) is not None
    command = Path(sys.executable).with_name("manta")
    subprocess.run([command, "ckpt", "show", path], capture_output=True, timeout=30)
    assert not mark.exists()


def test_workers_unpickle_nothing_of_a_stranger(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "ran"
    plain = write_checkpoint(tmp_path / "000001", hostile(mark))
    with Trainer(None, num_workers=1, quiet=True, logdir=tmp_path / "logs") as t:
        found = t.run(lambda: sgd.load_checkpoint(), checkpoint=plain)[0]
        assert set(found["_value"]) == {"$py", "$repr"}

        t.run(lambda: sgd.save_checkpoint(boom=Boom(mark)))  # a real one, with a pickle in it
        run = t.latest_run_dir
        assert run is not None and not mark.exists()
        mine = next((run / "checkpoints").iterdir())
        foreign = mine.rename(tmp_path / "elsewhere")
        with pytest.raises(PermissionError, match="trust=True"):
            t.run(lambda: sgd.load_checkpoint(), checkpoint=foreign)
        # Put into place after the driver has looked: the workers were told what to believe.
        monkeypatch.setattr(_state, "is_pickled", lambda path: False)
        with pytest.raises(PermissionError, match="trust=True"):
            t.run(lambda: sgd.load_checkpoint(), checkpoint=foreign)
        assert not mark.exists()
        t.run(lambda: sgd.load_checkpoint() and None, checkpoint=foreign, trust=True)
        assert mark.is_dir()  # what the others were kept from


def test_rows_and_results_of_the_own_run_are_unpickled() -> None:
    with Trainer(None, num_workers=1, quiet=True) as t:
        rows = t.run_generator(lambda: sgd.report(where=Path("x")) or {1, 2})
        assert [row["where"] for row in rows] == [Path("x")]
        assert rows.get_returns() == [{1, 2}]

# SPDX-License-Identifier: Apache-2.0
"""Every reader: values as they were written, from every kind of path; and what goes wrong."""

from __future__ import annotations

import ctypes
import gzip
import http.server
import random
import struct
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest

from manta import data
from manta.data import Dataset, col, read_csv

numpy = pytest.importorskip("numpy")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- CSV ------------------------------------------------------------------------------------------


def numerals(n: int) -> list[str]:
    """Of all kinds: short and long, small and large, next to where two doubles meet."""
    random.seed(5)
    some = [repr(random.uniform(-10, 10)) for _ in range(n)]
    some += [f"{random.uniform(-1, 1):.{k}e}" for k in (0, 3, 9, 17, 25) for _ in range(n // 10)]
    some += [f"{random.getrandbits(70)}e{random.randint(-340, 300)}" for _ in range(n)]
    return some + ["9007199254740993", "1e-320", "4.9e-324", "1.7976931348623157e308", "-0.0",
                   "0.1", "123456789012345678901234567890", "2.2250738585072014e-308"]


def test_every_number_is_that_of_strtod(tmp_path: Path) -> None:
    texts = numerals(2000)
    path = write(tmp_path / "n.csv", "x\n1.5\n" + "\n".join(texts) + "\n")
    got = numpy.concatenate([b["x"] for b in read_csv(path).iter_batches()])[1:]
    strtod = ctypes.CDLL(None).strtod
    strtod.restype, strtod.argtypes = ctypes.c_double, [ctypes.c_char_p, ctypes.c_void_p]
    wanted = numpy.array([strtod(t.encode(), None) for t in texts])
    assert (got.view("u8") == wanted.view("u8")).all()


def test_csv_as_rfc_4180_has_it(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", 'a,b,c\r\n1,"x, ""y""\nz",true\r\n,é,false\r\n')
    assert read_csv(path).take_all() == [{"a": 1, "b": 'x, "y"\nz', "c": True},
                                         {"a": None, "b": "é", "c": False}]
    path = write(tmp_path / "t.txt", "1;x\n2;-\n")
    d = read_csv(path, separator=";", header=False, names=["n", "s"], missing=["-"],
                 types={"n": "f32"})
    assert repr(d.schema()) == "n: f32\ns: string"
    assert d.take_all() == [{"n": 1.0, "s": "x"}, {"n": 2.0, "s": None}]
    assert read_csv(path, header=False, separator=";").columns() == ["c0", "c1"]
    assert read_csv(path, header=False, separator=";", columns=["c1"]).columns() == ["c1"]


def test_nulls_of_each_kind(tmp_path: Path) -> None:
    d = read_csv(write(tmp_path / "n.csv", "i,f,s,b\n1,1.5,x,true\n,,,\n"), missing=[""])
    assert d.take_all()[1] == {"i": None, "f": None, "s": None, "b": None}
    batch = d.take_batch()
    assert numpy.isnan(batch["i"][1]) and numpy.isnan(batch["f"][1])
    assert batch["s"][1] is None and batch["b"].tolist() == [True, None]


# --- paths ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(3):
        write(tmp_path / f"part-{i}.csv", f"n\n{2 * i}\n{2 * i + 1}\n")
    write(tmp_path / "_SUCCESS", "not data")
    return tmp_path


def rows(d: Dataset) -> list[Any]:
    return [r["n"] for r in d.take_all()]


def test_paths_of_every_kind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(read_csv(folder)) == rows(read_csv(f"{folder}/*.csv")) == list(range(6))
    assert rows(read_csv([folder / "part-2.csv", str(folder / "part-0.csv")])) == [4, 5, 0, 1]
    assert rows(read_csv(f"file://{folder}/part-1.csv")) == [2, 3]
    monkeypatch.chdir(folder)
    d = read_csv("part-1.csv")
    monkeypatch.chdir("/")  # it knows where it was
    assert rows(d) == [2, 3] and d.input_files() == [str(folder / "part-1.csv")]
    with gzip.open(folder / "part-3.csv.gz", "wt") as f:
        f.write("n\n6\n7\n")
    assert rows(read_csv(folder)) == list(range(8))


def test_a_large_file_is_many_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "big.csv", "n\n" + "\n".join(map(str, range(20000))) + "\n")
    d = read_csv(path, block_bytes=1 << 14)
    assert d.num_blocks() > 5 and rows(d) == list(range(20000))
    assert sorted(rows(d.random_shuffle(seed=3))) == list(range(20000))


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_port}"
        s.shutdown()


def test_http(server: str) -> None:
    try:
        d = read_csv(f"{server}/part-1.csv")
    except RuntimeError as e:  # the module that needs libcurl was not built
        pytest.skip(str(e))
    assert rows(d) == [2, 3]
    with pytest.raises(OSError, match="none.csv"):
        read_csv(f"{server}/none.csv")


# --- the others -----------------------------------------------------------------------------------


def test_json_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 1, "s": "x"}\n{"s": "é", "a": 2.5}\n')
    assert data.read_json(path).take_all() == [{"a": 1.0, "s": "x"}, {"a": 2.5, "s": "é"}]


def test_text(tmp_path: Path) -> None:
    d = data.read_text(write(tmp_path / "a.txt", "one\ntwo\n"))
    assert d.take_all() == [{"text": "one"}, {"text": "two"}]


def test_numpy_files(tmp_path: Path) -> None:
    x = numpy.random.default_rng(0).normal(size=(100, 3, 2)).astype("f4")
    numpy.save(tmp_path / "x.npy", x)
    numpy.savez(tmp_path / "xy.npz", a=x[:, 0], b=numpy.arange(100))
    got = data.read_numpy(tmp_path / "x.npy").take_batch(100)["data"]
    assert got.dtype == "f4" and (got == x).all()
    both = data.read_numpy(tmp_path / "xy.npz").take_batch(100)
    assert (both["a"] == x[:, 0]).all() and (both["b"] == numpy.arange(100)).all()


def test_binary_files(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0\1\2")
    (tmp_path / "b.bin").write_bytes(b"xyz")
    d = data.read_binary_files(tmp_path)
    assert [r["bytes"] for r in d.take_all()] == [b"\0\1\2", b"xyz"]
    assert any("a.bin" in str(v) for v in d.take(1)[0].values())
    assert data.read_binary_files(tmp_path, include_paths=True).columns() == ["bytes", "path"]
    assert data.read_binary_files(tmp_path, include_paths=False).columns() == ["bytes"]


def test_fixed_records(tmp_path: Path) -> None:
    records = b"".join(struct.pack("<BI", i, 10 * i) for i in range(5))
    (tmp_path / "r").write_bytes(b"head" + records)
    d = data.read_fixed(tmp_path / "r", {"a": "u8", "b": "u32"}, skip_bytes=4)
    assert d.take_all() == [{"a": i, "b": 10 * i} for i in range(5)]


def crc32c(message: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in message:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example(value: float, number: int) -> bytes:
    """A tf.train.Example {x: float, n: int64}, as a record of a TFRecord."""
    def part(tag: int, body: bytes) -> bytes:
        return bytes([tag << 3 | 2, len(body)]) + body
    x = part(2, part(1, struct.pack("<f", value)))
    n = part(3, part(1, bytes([number])))
    both = ((b"x", x), (b"n", n))
    entries = b"".join(part(1, part(1, key) + part(2, body)) for key, body in both)
    record = part(1, entries)
    head = struct.pack("<Q", len(record))
    return head + struct.pack("<I", crc32c(head)) + record + struct.pack("<I", crc32c(record))


def test_tfrecords(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"".join(example(i / 2, i) for i in range(5)))
    d = data.read_tfrecords(tmp_path / "a.tfrecord")
    assert d.take_all() == [{"x": i / 2, "n": i} for i in range(5)]


# --- memory ---------------------------------------------------------------------------------------


def test_items() -> None:
    assert data.from_items([3, 1]).take_all() == [{"item": 3}, {"item": 1}]
    mixed = [{"a": 1, "b": "x", "c": True, "d": b"\0"}, {"a": 2.5, "e": [1, 2]},
             {"a": None, "b": None, "c": None, "e": numpy.array([3, 4])}]
    got = data.from_items(mixed).take_all()
    assert [r["a"] for r in got] == [1.0, 2.5, None] and [r["b"] for r in got] == ["x", None, None]
    assert [r["c"] for r in got] == [True, None, None] and got[0]["d"] == b"\0"
    assert got[0]["e"] is None and got[2]["e"].tolist() == [3, 4]
    assert data.from_items([2 ** 63 + 1]).take_all() == [{"item": 2 ** 63 + 1}]
    for wrong, said in (([1, "a"], "values of int, str do not make a column"),
                        ([[1], [1, 2]], "do not make a column"), ([2 ** 64], "64 bits"),
                        ([], "no items")):
        with pytest.raises((TypeError, ValueError), match=said):
            data.from_items(wrong)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8",
                                  "?", "U3", "M8[D]", "M8[ns]", "m8[s]", ">f4"])
def test_arrays_come_back_as_they_went(kind: str) -> None:
    a = numpy.arange(20).astype(kind)
    got = data.from_numpy(a).take_batch(20)["data"]
    assert (got == a).all()
    assert got.dtype.kind == ("O" if kind == "U3" else a.dtype.kind)
    if kind[0] in "iuf":
        assert got.dtype == a.dtype
        cube = a.repeat(6).reshape(20, 2, 3)
        assert (data.from_numpy({"c": cube[:, ::-1]}).take_batch(20)["c"] == cube[:, ::-1]).all()


def test_memory_is_shared_not_copied() -> None:
    a = numpy.arange(10.0)
    d = data.from_numpy(a)
    got = d.take_batch(10)["data"]
    assert numpy.shares_memory(a, got) and not got.flags.writeable
    del a, d
    assert got.sum() == 45  # held by what shows it
    both = data.from_numpy([numpy.arange(2), numpy.arange(3)])
    assert [r["data"] for r in both.take_all()] == [0, 1, 0, 1, 2]
    with pytest.raises(ValueError, match="arrays of equally many rows"):
        data.from_numpy({"a": numpy.zeros(2), "b": numpy.zeros(3)})


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_ragged_row_is_named_or_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", "a,b\n1,2\n3\n4,5\n")
    with pytest.raises(ValueError, match=r"r\.csv:3\b.*\nhint: "):
        read_csv(path).take_all()
    d = read_csv(path, on_error="skip")
    assert d.take_all() == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]
    assert d.stats()["skipped"] == 1 and "r.csv:3" in d.stats()["first_skip"]
    with pytest.raises(ValueError, match='on_error=\'ignore\': it is "raise"'):
        read_csv(path, on_error="ignore")


def test_a_wrong_type_far_behind_the_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "w.csv", "n\n" + "1\n" * 1_000_000 + "x\n1\n")
    said = r'w\.csv:1000002: column 1 \("n"\): "x" is no i64\nhint: '
    with pytest.raises(ValueError, match=said):
        for _ in read_csv(path).iter_batches(batch_size=65536):
            pass
    d = read_csv(path, on_error="skip")
    assert sum(len(b["n"]) for b in d.iter_batches(batch_size=65536)) == 1_000_001
    assert d.stats()["skipped"] == 1


def test_a_file_that_shrinks(tmp_path: Path) -> None:
    path = write(tmp_path / "s.csv", "n\n" + "1\n" * 1000)
    d = read_csv(path)
    write(path, "n\n1\n")
    with pytest.raises(OSError, match=r"s\.csv: has 4 bytes, but had 2002"):
        d.take_all()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv", tmp_path / "*.csv"):
        with pytest.raises(FileNotFoundError, match=str(tmp_path).replace("*", r"\*")):
            read_csv(path)
    with pytest.raises(ValueError, match="no path is given\nhint: "):
        read_csv([])
    gone = write(tmp_path / "gone.csv", "n\n1\n")
    d = read_csv(gone)
    gone.unlink()
    with pytest.raises(FileNotFoundError, match="gone.csv"):
        d.take_all()


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "age,name\n1,x\n")
    with pytest.raises(KeyError, match='no column "agge"\nhint: the nearest names are "age"'):
        read_csv(path, columns=["agge"])
    with pytest.raises(KeyError):
        read_csv(path).filter(col("height") > 2)
    with pytest.raises(ValueError, match="one character"):
        read_csv(path, separator=";;")

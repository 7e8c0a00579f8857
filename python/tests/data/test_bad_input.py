# SPDX-License-Identifier: Apache-2.0
"""Files as people have them: a message names the file, the place and a remedy, or the rows that
cannot be read are left out and counted."""

from __future__ import annotations

import gzip
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Iterator

import pytest

import manta
from manta.data import read_csv, read_json, read_numpy, read_text

GZ = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)

REFUSED: list[tuple[str, bytes, dict[str, Any], str]] = [
    ("ragged.csv", b"a,b\n1,2\n3\n", {}, r":3: a row of 1 fields; .*\nhint: is the separator"),
    ("u16.csv", "a,b\n1,2\n".encode("utf-16"), {}, r": is UTF-16\nhint: convert it: iconv"),
    ("u16le.csv", "a,b\n1,2\n".encode("utf-16-le"), {}, r": looks like UTF-16\nhint: .*iconv"),
    ("latin.csv", "a,b\n1,grün\n".encode("latin-1"), {}, r':2: column 2 \("b"\).*\nhint: .*iconv'),
    ("cr.csv", b"a,b\r1,2\r", {}, r":1: a CR in the middle of a field.*\nhint: convert it: tr"),
    ("zero.csv", b"", {}, ": is empty: it has no columns"),
    ("nul.csv", b"a\0,b\n1,2\n", {}, r":1: the name of column 1 is no text.*\nhint: "),
    ("junk.csv", bytes(range(128, 256)) * 9, {}, r":1: the name of column 1 is no text.*\nhint: "),
    ("stray.csv", b'a,b\n1,5" pipe\n', {}, r':2: a quote \("\) in the middle.*\nhint: quote the'),
    ("open.csv", b'a,b\n1,"x\n2,y\n', {}, r":2: a quote .* is never closed\nhint: "),
    ("hex.csv", b"a\n0x10\n", {"types": {"a": "i64"}}, r':2: column 1 .*"0x10" is no i64\nhint: '),
    ("under.csv", b"a\n1_000\n", {"types": {"a": "f64"}}, r'"1_000" is no f64\nhint: '),
    ("wide.csv", b"a\n9223372036854775808\n", {"types": {"a": "i64"}}, r":2: .* is no i64\nhint: "),
    ("typo.csv", b"age\n1\n", {"types": {"agee": "f64"}},
     r'types: there is no column "agee"\nhint: the nearest names are "age"'),
    ("long.csv", b"a,b\n1," + b"x" * 100_000 + b"\n", {"row_bytes": 1000},
     r":2: a row of more than 1000 bytes\nhint: .* row_bytes sets another limit"),
    ("cut.csv.gz", GZ[:-20], {}, r": ends in the middle of what is compressed.*\nhint: "),
    ("bad.csv.gz", GZ[:60] + b"\xff" * 9 + GZ[69:], {}, r": near byte \d+ is no valid gzip.*\nhi"),
    ("plain.csv.gz", b"a,b\n1,2\n", {}, r'is no valid gzip.*\nhint: .*compression = "none"'),
    ("cut.csv.zst", b"\x28\xb5\x2f\xfd\x04", {}, r": ends in the middle of what is compressed"),
]


@pytest.mark.parametrize("name, text, options, said", REFUSED, ids=lambda v: v if isinstance(
    v, str) and v.endswith(("csv", "gz", "zst")) else "")
def test_refused(tmp_path: Path, name: str, text: bytes, options: dict[str, Any],
                 said: str) -> None:
    path = tmp_path / name
    path.write_bytes(text)
    with pytest.raises(Exception, match=said) as caught:
        read_csv(path, **options).take_all()
    assert name in str(caught.value) or "types: " in str(caught.value)


SKIPPED: list[tuple[bytes, list[int], int]] = [
    (b"a,b\n1,x\n2\n3,x,y\n4,x\n", [1, 4], 2),
    (b'a,b\n1,5" pipe\n2,x\n3,y\n', [2, 3], 1),
    (b'a,b\n1,"open\n2,x\n3,y\n', [2, 3], 1),
    (b"a,b\n1,x\n2," + b"z" * 5000 + b"\n3,y\n", [1, 3], 1),
]


@pytest.mark.parametrize("text, kept, skipped", SKIPPED, ids=range(len(SKIPPED)))
def test_skipped(tmp_path: Path, text: bytes, kept: list[int], skipped: int) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(text)
    d = read_csv(path, on_error="skip", row_bytes=1000)
    assert [row["a"] for row in d.take_all()] == kept
    assert d.stats()["skipped"] == skipped and "x.csv:" in d.stats()["first_skip"]
    assert d.count() == len(kept) == d.select_columns(["b"]).count()


READ: list[tuple[bytes, list[Any]]] = [
    (b"\xef\xbb\xbfa\n1\n", [1]), (b"a\n", []), (b"a\r\n1\r\n2", [1, 2]),
    (b"a,b\n1,x\0y\n", [1]), (b"a,a\n1,2\n", [1]),
    (b"a\n1e400\n-0\n1e-400\n", [float("inf"), -0.0, 0.0]),
    (b"a\n0x10\n1_000\n", ["0x10", "1_000"]), (b"a\n2024-13-45\n", ["2024-13-45"]),
    (b"a\n1\n9223372036854775808\n", [1, 9223372036854775808]),
    (b"a\n1\n99999999999999999999\n", [1.0, 1e20]),
]


@pytest.mark.parametrize("text, column", READ, ids=range(len(READ)))
def test_read(tmp_path: Path, text: bytes, column: list[Any]) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(text)
    assert [row["a"] for row in read_csv(path).take_all()] == column


def test_folders(tmp_path: Path) -> None:
    for number, text in enumerate(("", "a,b\n1,2\n", "", "b,a\n4,3\n")):
        (tmp_path / f"{number}.csv").write_text(text)
    assert [row["a"] for row in read_csv(tmp_path).take_all()] == [1, 3]
    (tmp_path / "4.csv").write_text("a,c\n5,6\n")
    with pytest.raises(ValueError, match=r'4\.csv: has no column "b", which the first file has\nh'):
        read_csv(tmp_path, on_error="skip").take_all()
    with pytest.raises(FileNotFoundError, match=r'11\.csv: .*\nhint: there is "1\.csv"'):
        read_csv(tmp_path / "11.csv")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "*.none"):
        with pytest.raises(FileNotFoundError, match=re.escape(path.name) + ".*\nhint: "):
            read_csv(path)
    for wrong in (None, 3, b"1.csv", [None]):
        with pytest.raises(TypeError, match="a path is a str or a Path"):
            read_csv(wrong)  # type: ignore[arg-type]


def test_types_are_found_in_files_with_rows(tmp_path: Path) -> None:
    for number, text in enumerate(("a,b\n", "", "a,b\n\n", "a,b\n1,x\n", "a,b\n2.5,y\n")):
        (tmp_path / f"{number}.csv").write_text(text)
    d = read_csv([tmp_path / f"{i}.csv" for i in range(4)])
    assert d.take_all() == [{"a": 1, "b": "x"}] and d.schema().types == ["i64", "string"]
    assert read_csv(tmp_path).take_all() == [{"a": 1, "b": "x"}, {"a": 2.5, "b": "y"}]
    assert read_csv([tmp_path / "0.csv", tmp_path / "2.csv"]).columns() == ["a", "b"]
    (tmp_path / "0.json").write_text("\n")
    (tmp_path / "1.json").write_text('{"a": 1}\n')
    assert read_json(tmp_path / "*.json").take_all() == [{"a": 1}]


def test_a_type_that_no_sample_shows(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.csv").write_text("a\n2.5\n" if number == 1 else "a\n1\n")
    with pytest.raises(ValueError, match=r'"2\.5" is no i64\nhint: types = {"a": "f64"} reads it'):
        read_csv(tmp_path).take_all()
    assert read_csv(tmp_path, types={"a": "f64"}).take_all()[1] == {"a": 2.5}


def test_a_memory_limit_below_a_batch(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + "1.5,2.5\n" * 200_000)
    with pytest.raises(ValueError, match=r"65536 at a time, .*\nhint: set a memory limit of \d+"):
        list(read_csv(tmp_path / "x.csv").iter_batches(1024, memory_limit=1 << 20))


def test_arrays_that_are_not_whole(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "x.npy", numpy.ones((3, 4)))
    numpy.savez(tmp_path / "x.npz", a=numpy.ones(30))
    for name, said in (("x.npy", "need 224 bytes, but"), ("x.npz", "its end is missing")):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-8])
        with pytest.raises(manta.Error, match=rf"{name}: .*{said}.*\nhint: "):
            read_numpy(tmp_path / name).take_all()
    (tmp_path / "x.npy").write_bytes(b"hello")
    with pytest.raises(manta.Error, match=r"x\.npy: .*ends in the header.*\nhint: is it a \.npy"):
        read_numpy(tmp_path / "x.npy")


def test_lines(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbfone\r\n\xff\n")
    with pytest.raises(ValueError, match=r'x\.txt:2: is not UTF-8\nhint: types = {"text": "b'):
        read_text(tmp_path / "x.txt").take_all()
    rows = read_text(tmp_path / "x.txt", types={"text": "bytes"}).take_all()
    assert [row["text"] for row in rows] == [b"one", b"\xff"]


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": 1}\n{"a":\n{"a": 3}\n')
    with pytest.raises(ValueError, match=r"x\.json:2: character 6: no value\nhint: "):
        read_json(path).take_all()
    assert [row["a"] for row in read_json(path, on_error="skip").take_all()] == [1, 3]
    path.write_bytes(b'\xef\xbb\xbf{"a": "x"}\r\n{"a": "\xff"}\r\n')
    with pytest.raises(ValueError, match=r'x\.json:2: "a": \? is no text in UTF-8\nhint: types = '):
        read_json(path).take_all()
    assert read_json(path, on_error="skip").take_all() == [{"a": "x"}]
    path.write_text('[{"a": 1}]')
    with pytest.raises(ValueError, match=r"x\.json: has no columns.*\nhint: .*jq -c"):
        read_json(path)


# --- servers --------------------------------------------------------------------------------------


class Whole(BaseHTTPRequestHandler):
    """Neither a size nor ranges nor HEAD, as of HTTP/1.0."""

    requests = 0

    def do_GET(self) -> None:
        Whole.requests += 1
        self.send_response(200 if self.path.endswith("x.csv.gz") else 404)
        self.end_headers()
        if self.path.endswith("x.csv.gz"):
            self.wfile.write(GZ)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def whole() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Whole)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(20)


def test_a_server_that_tells_no_size(whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    d = read_csv(f"{whole}/x.csv.gz")
    assert d.count() == 100_000 and len(d.take_all()) == 100_000
    assert Whole.requests == 1
    with pytest.raises(FileNotFoundError, match="HTTP 404"):
        read_csv(f"{whole}/other.csv")
    monkeypatch.setenv("MANTA_DATA_SPOOL", "0")
    with pytest.raises(ValueError, match="more bytes than may be copied.*\nhint: MANTA_DATA_SPOOL"):
        read_csv(f"{whole}/2/x.csv.gz")

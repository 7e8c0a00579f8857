# SPDX-License-Identifier: Apache-2.0
"""The package as it is installed: what it imports, what it carries, what editors know of it."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import manta
from manta import _command, _manta

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = Path(_manta.__file__).parent
GLIBC = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux.*")
WHEEL = pytest.mark.skipif(not (PACKAGE / "lib").is_dir(), reason="manta runs from a build tree")

# Two workers that return what is asked for.
SCRIPT = """
import sys
from manta.sgd import Trainer, world_rank

def train(config):
    maps = open("/proc/self/maps").read()
    return world_rank(), sorted({m.split()[-1] for m in maps.splitlines() if "libjansson" in m})

if __name__ == "__main__":
    with Trainer(backend=None, num_workers=2) as trainer:
        print(sys.prefix, trainer.run(train))
"""


def run(*words: str | Path, **env: str) -> str:
    done = subprocess.run([str(w) for w in words], env={**os.environ, **env}, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=50)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def script(path: Path) -> Path:
    path.write_text(SCRIPT)
    return path


# --- import ---------------------------------------------------------------------------------------


def test_import_is_light() -> None:
    """Neither a framework nor anything that takes its time; the package itself is four modules."""
    said = run(sys.executable, "-c", "import sys; before = set(sys.modules); import manta; "
               "print(*sorted(set(sys.modules) - before))").split()
    heavy = {"torch", "numpy", "cloudpickle", "asyncio", "multiprocessing", "subprocess", "logging",
             "inspect", "dataclasses", "tempfile", "importlib.metadata", "pickle"}
    assert "manta._manta" in said and not heavy & set(said), said
    assert len([m for m in said if m.startswith("manta")]) <= 4 and len(said) <= 40, said


def test_the_version_is_that_of_the_library() -> None:
    project = re.search(r"project\(.*?version: '(.+?)'", (ROOT / "meson.build").read_text())
    assert project and manta.__version__ == project[1]


@WHEEL
def test_the_distribution() -> None:
    about = importlib.metadata.distribution("manta-train")
    assert about.version == manta.__version__
    assert about.requires and about.requires[0].startswith("cloudpickle")
    assert re.search(r"^Tag: cp311-abi3-linux_", about.read_text("WHEEL") or "", re.M)


def test_the_oldest_python_is_the_same_everywhere() -> None:
    """What the extension is compiled for, what the wheel is tagged with, what pip asks for."""
    said = [re.findall(pattern, (ROOT / where).read_text()) for where, pattern in (
        ("python/meson.build", r"limited_api: '3\.(\d+)'"),
        ("scripts/backend.py", r'\nPYTHON = "cp3(\d+)"'),
        ("pyproject.toml", r'requires-python = ">=3\.(\d+)"'),
        ("pyproject.toml", r'python_version = "3\.(\d+)"'))]
    assert said == [["11"]] * 4


def test_the_oldest_torch_is_the_same_everywhere() -> None:
    from manta._frameworks.torch import OLDEST
    asked = re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    told = re.findall(r"torch ([\d.]+\d) or\s+later", (ROOT / "docs" / "python.md").read_text())
    assert asked == told == [".".join(map(str, OLDEST))]


def test_a_ninja_is_found_where_the_machine_has_none(tmp_path: Path) -> None:
    """For an editable install that is compiled again; pip's own is gone by then."""
    if not (ROOT / "build" / "venv" / "bin" / "ninja").exists():
        pytest.skip("scripts/meson has not made build/venv yet")
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    assert re.match(r"1\.\d+", run(ROOT / "scripts" / "ninja", "--version", PATH=str(tmp_path)))


# --- what it carries ------------------------------------------------------------------------------


# Modules that are loaded when they are used, with a library that the system has to have.
OUTSIDE = {"libmanta-ucx.so": r"libuc[pst]\.so", "libmanta-zlib.so": r"libz\.so",
           "libmanta-zstd.so": r"libzstd\.so", "libmanta-curl.so": r"libcurl\.so",
           "libmanta-cairo.so": r"libcairo\.so",
           "libmanta-dash.so": r"libmicrohttpd\.so"}


def shared_objects() -> list[Path]:
    found = [p for p in PACKAGE.rglob("*") if p.is_file() and p.open("rb").read(4) == b"\x7fELF"]
    assert len(found) >= 7, found
    return found


@WHEEL
def test_only_what_a_program_needs_is_there() -> None:
    kinds = {".py", ".pyc", ".pyi", ".typed"}
    strange = [p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in kinds
               and p not in shared_objects()]
    assert not strange, strange
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_manta.pyi").exists()


@WHEEL
@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")
def test_every_library_is_the_system_s_or_comes_along() -> None:
    brought = {p.name for p in (PACKAGE / "lib").iterdir()}
    for p in shared_objects():
        said = run("readelf", "-d", p)
        needs = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))
        needs = {n for n in needs if not GLIBC.fullmatch(n)}
        if outside := OUTSIDE.get(p.name):
            needs = {n for n in needs if not re.match(outside, n)}
        assert needs <= brought, f"{p}: {needs - brought}"
        paths = re.findall(r"\(R(?:UN)?PATH\).*\[(.+)\]", said)
        assert all(e.startswith("$ORIGIN") for path in paths for e in path.split(":")), said
        assert not needs or paths, f"{p} does not say where {needs} are"


@WHEEL
def test_every_library_that_comes_along_has_its_licence() -> None:
    about = importlib.metadata.distribution("manta-train")
    texts = {p.name: p.read_text(encoding="utf-8") for p in about.files or []
             if ".dist-info/licenses/" in str(p)}
    named = re.findall(r"^  (lib\w+) +\S", texts["NOTICE"], re.M)
    carried = [found[1] for p in (PACKAGE / "lib").iterdir()
               if (found := re.match(r"(lib\w+)\.so", p.name)) and found[1] != "libmanta"]
    assert sorted(carried) == sorted(named) and carried, (carried, named)
    for name in carried:
        assert re.search(r"Copyright .*\n(.*\n)+.*AS IS", texts[f"{name}.txt"]), name
    assert "Apache License" in texts["LICENSE"]


@WHEEL
def test_workers_use_the_libraries_that_come_along(tmp_path: Path) -> None:
    said = run(sys.executable, script(tmp_path / "train.py"))
    assert re.findall(r"\((\d), \['(.*?)'\]\)", said) == [
        (str(rank), str(PACKAGE / "lib" / "libjansson.so.4")) for rank in (0, 1)], said


HIDE = r"""
for f in $(ldconfig -p | sed -nE 's,.* => (.*/lib(jansson|xxhash|uv|uc[pst])\.so.*),\1,p'); do
  mount --bind "$1" "$(readlink -f "$f")"
done
if ldconfig -p | grep -q libjansson; then # the proof that they are gone
  "$2" -c 'import ctypes; ctypes.CDLL("libjansson.so.4")' 2>/dev/null && exit 1
fi
"$2" "$3" && "$4" version
"""


@WHEEL
def test_it_works_where_the_libraries_are_not_installed(tmp_path: Path) -> None:
    can = subprocess.run(["unshare", "-m", "mount", "--bind", tmp_path, tmp_path],
                         capture_output=True)
    if can.returncode != 0:
        pytest.skip("mounts of our own are not allowed here")
    (tmp_path / "empty").touch()
    said = run("unshare", "-m", "bash", "-euc", HIDE, "hide", tmp_path / "empty", sys.executable,
               script(tmp_path / "train.py"), _command.path())
    assert "(0, " in said and "(1, " in said and f"manta {manta.__version__}" in said, said


# --- the command ----------------------------------------------------------------------------------


def console_script() -> Path:
    path = Path(sys.executable).parent / "manta"
    if not path.exists():
        pytest.skip("the package is not installed in this environment")
    return path


def test_the_command_is_the_package_s() -> None:
    assert run(console_script(), "version") == f"manta {manta.__version__}\n"


def test_it_runs_scripts_with_the_interpreter_of_its_environment(tmp_path: Path) -> None:
    said = run(console_script(), "run", script(tmp_path / "train.py"), PATH="/usr/bin:/bin")
    assert said.startswith(f"{sys.prefix} [(0, "), said
    said = run(console_script(), "run", script(tmp_path / "train.py"), MANTA_PYTHON="/bin/echo")
    assert said == f"{tmp_path / 'train.py'}\n"


def test_the_doctor_knows_the_package() -> None:
    said = run(console_script(), "doctor")
    assert re.search(rf"^ok +Python +.*manta {re.escape(manta.__version__)}", said, re.M), said


# --- the stub -------------------------------------------------------------------------------------


def test_the_stub_is_that_of_the_extension() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "make-stub", "--check"], text=True,
                          capture_output=True)
    assert done.returncode == 0, "run tools/make-stub:\n" + done.stdout + done.stderr


def test_the_signature_of_the_trainer_is_true() -> None:
    """The names that the C code takes are those that its documentation says."""
    for name in inspect.signature(_manta.Trainer).parameters:
        try:
            _manta.Trainer(**{name: None})
        except (TypeError, ValueError) as e:
            assert " keyword " not in str(e), e
    with pytest.raises(TypeError, match="(invalid|unexpected) keyword"):
        _manta.Trainer(nonsense=1)  # type: ignore[call-arg]


def test_errors_have_their_fields_always() -> None:
    for e in (manta.Error("x"), manta.PeerLost("x"), manta.Preempted("x")):
        assert (e.status, e.rank, e.detail) == ("", -1, None)

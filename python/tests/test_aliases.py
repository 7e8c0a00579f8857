# SPDX-License-Identifier: Apache-2.0
"""Modules by further paths: every row of manta._aliases, in every way that one is imported."""

from __future__ import annotations

import importlib
import importlib.util
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import manta
from manta import _aliases, sgd
from manta._frameworks.torch import loader, prepare, sampler
from manta._front.run import Reports
from manta._runtime import errors
from manta.sgd import Trainer

PACKAGE = Path(manta.__file__).parent
PATHS = sorted(_aliases.OLDER)


def run(*words: Any, **options: Any) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=50,
                          **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", PATHS)
def test_a_path_has_the_names_of_its_modules(path: str) -> None:
    found = importlib.import_module(path)
    assert found.__name__ == path and found.__spec__ and found.__spec__.name == path
    assert importlib.reload(found) is found
    for target in _aliases.ALIASES[path]:
        module = importlib.import_module(target)
        public = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        assert public
        for name in public:
            assert getattr(found, name) is getattr(module, name)
            assert name in dir(found)
    with pytest.raises(AttributeError):
        found.nothing_of_that_name


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_imported_in_every_way(path: str) -> None:
    """In a process that has imported nothing else of manta's, and without a framework."""
    parent, _, last = path.rpartition(".")
    for way in (f"import {path}; found = {path}", f"import {path} as found",
                f"from {parent} import {last} as found", f"import manta; found = {path}",
                f"import importlib; found = importlib.import_module({path!r})",
                f"import importlib.util; assert importlib.util.find_spec({path!r}); "
                f"import {path} as found"):
        assert run("-c", f"import sys; {way}; print(found.__name__, 'torch' in sys.modules)"
                   ) == f"{path} False\n", way


def test_all_names_at_once() -> None:
    space: dict[str, Any] = {}
    exec("from manta.util.sgd.v2 import *", space)
    assert {n for n in space if n != "__builtins__"} == set(sgd.__all__)
    assert all(space[name] is getattr(sgd, name) for name in sgd.__all__)


def test_pickles_name_the_module_that_defines_it() -> None:
    for path in ("manta.util.sgd", "manta.util.sgd.v2", "manta.experimental.sgd"):
        found = importlib.import_module(path)
        for o in (found.CheckpointStrategy, found.Trainer, found.report):
            for data in (pickle.dumps(o), cloudpickle.dumps(o)):
                assert pickle.loads(data) is o and path.encode() not in data
        assert pickle.loads(cloudpickle.dumps(found)) is found is pickle.loads(pickle.dumps(found))
        assert repr(found) == f"<module {path!r} ({', '.join(_aliases.ALIASES[path])})>"


PROGRAM = """
import manta.util.sgd.v2 as sgd
from manta.experimental import sgd as oldest
from manta.util import sgd as old

class Told(old.callbacks.SGDCallback):
    def handle_result(self, results):
        print("told", results[0]["path"])

def train(config):
    import sys
    sgd.report(path=oldest.__name__)
    return old.__name__, sgd.world_rank(), "manta.util.sgd" in sys.modules

if __name__ == "__main__":
    with oldest.Trainer(None, num_workers=2, callbacks=[Told()], quiet=True) as trainer:
        print(trainer.run(train))
"""


@pytest.mark.parametrize("way", [["program.py"], ["-m", "program"], ["-m", "folder"]])
def test_a_program_with_older_paths(tmp_path: Path, way: list[str]) -> None:
    """The modules are globals of its train function, and travel to the workers."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(PROGRAM)
    assert run(*way, cwd=tmp_path) == (
        "told manta.experimental.sgd\n"
        "[('manta.util.sgd', 0, True), ('manta.util.sgd', 1, True)]\n")


def test_a_path_is_not_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "manta.util.sgd.v2"], capture_output=True,
                          text=True, timeout=50)
    assert done.returncode == 1 and "cannot be directly executed" in done.stderr


@pytest.mark.parametrize("path", PATHS)
def test_editors_know_the_same_names(path: str) -> None:
    """Its stub says what the table says, and there is none without a row."""
    place = PACKAGE.joinpath(*path.split(".")[1:])
    stub = place / "__init__.pyi" if place.is_dir() else place.with_suffix(".pyi")
    text = stub.read_text()
    assert tuple(re.findall(r"^from (\S+) import \*", text, re.M)) == _aliases.ALIASES[path]
    below = {p.rpartition(".")[2] for p in PATHS if p.rpartition(".")[0] == path}
    assert set(re.findall(r"^from \. import (\w+) as \1$", text, re.M)) == below


def test_no_stub_is_left_over() -> None:
    stubs = {p.relative_to(PACKAGE).with_suffix("") for p in PACKAGE.rglob("*.pyi")}
    names = {".".join(("manta", *p.parts)).removesuffix(".__init__") for p in stubs}
    assert names == {*PATHS, "manta._manta"}
    assert all(path.startswith(manta._OLDER) for path in PATHS)  # found before their folders are


# By the version before each row of MOVED, in the protocol that can be read.
EARLIER = [
    (b"cmanta._main\nitself\n(I5\ntR.", 5),
    (b"cmanta._main\nmodule\n(Vmath\ntR.", math),
    (b"cmanta._raised\nagain\n(c__builtin__\nKeyError\n(Va\nttR.", KeyError("a")),
    (b"cmanta._errors\nTrainingFailed\n(Va\ntR.", errors.TrainingFailed("a")),
    (b"cmanta._late\nCollectiveTimeout\n(Va\ntR.", errors.CollectiveTimeout("a")),
    (b"cmanta.sgd.backend\nBackendConfig\n.", sgd.BackendConfig),
    (b"cmanta.sgd.hosts\nHost\n(Va\ntR.", sgd.Host("a")),
    (b"cmanta.sgd.run\nReports\n((lp0\nI1\natR.", Reports([1])),
    (b"cmanta.sgd.session\nSessionError\n(Va\ntR.", sgd.SessionError("a")),
    (b"cmanta.sgd.strategy\nCheckpointStrategy\n(I2\ntR.", sgd.CheckpointStrategy(2)),
    (b"cmanta.sgd.torch_backend\nTorchConfig\n(Vgloo\ntR.", sgd.TorchConfig("gloo")),
    (b"cmanta.sgd.trainer\nTrainer\n.", Trainer),
    (b"cmanta.sgd.worker_group\nWorkerGroup\n.", sgd.WorkerGroup),
    (b"cmanta._torch.loader\nPreparedLoader\n.", loader.PreparedLoader),
    (b"cmanta._torch.prepare\n_add_prefix\n.", prepare._add_prefix),
    (b"cmanta._torch.sampler\nShardSampler\n.", sampler.ShardSampler),
]


@pytest.mark.parametrize("data, o", EARLIER, ids=lambda v: repr(v)[:40])
def test_pickles_of_earlier_versions_are_read(data: bytes, o: Any) -> None:
    found = pickle.loads(data)
    assert type(found) is type(o) and repr(found) == repr(o)


def test_every_row_of_earlier_pickles_is_read() -> None:
    named = {m.decode() for data, _ in EARLIER for m in re.findall(rb"(?:^|\()c(manta\S+)", data)}
    folders = {path.rpartition(".")[0] for path in named} - {"manta", "manta.sgd"}
    assert named | folders == set(_aliases.MOVED)


def test_generation_2_is_the_trainer_of_today() -> None:
    assert importlib.import_module("manta.util.sgd.v2").Trainer is Trainer

# SPDX-License-Identifier: Apache-2.0
"""torch's own tests of torch.distributed, those that the installed version has, against the backend
"manta" in its workers (play.py).

What cannot pass is in skipped.txt, with the reason. It is long: `make check-all`, or

    pytest python/tests/matrix [-k NAME]
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Iterator

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from manta.sgd import TorchConfig, Trainer  # noqa: E402

HERE = Path(__file__).parent
RANKS = 4
LIMIT_S = 1700.0
FOLDERS = ("barrier", "test_dir", "init_dir")  # what the tests look for

pytestmark = pytest.mark.deadline(LIMIT_S)


def names() -> list[str]:
    """Of all tests, without an import: that takes seconds, and wants a backend."""
    base = importlib.util.find_spec("torch")
    assert base is not None and base.origin is not None
    source = Path(base.origin).parent / "testing/_internal/distributed/distributed_test.py"
    if not source.exists():
        return []
    found = [f.name for c in ast.walk(ast.parse(source.read_text()))
             if isinstance(c, ast.ClassDef) and c.name == "_DistTestBase"
             for f in c.body if isinstance(f, ast.FunctionDef)]
    return sorted(n for n in found if n.startswith("test_"))


def listed() -> dict[str, str]:
    """Name and reason of what is not played."""
    lines = (HERE / "skipped.txt").read_text().splitlines()
    rows = [s.split(":", 1) for s in lines if s and not s.startswith("#")]
    return {name.strip(): why.strip() for name, why in rows}


NAMES, LISTED = names(), listed()


class Matrix:
    """Plays the tests that are asked for, as many in one run as go well."""

    def __init__(self, place: Path, wanted: list[str]):
        self.place = place
        self.verdict: dict[str, str] = {}
        for folder in FOLDERS:
            (place / folder).mkdir()
        while wanted:
            wanted = self._play(wanted)

    def _play(self, wanted: list[str]) -> list[str]:
        """What is left to play."""
        from play import play_all
        for f in (self.place / "barrier").iterdir():
            f.unlink()
        for r in range(RANKS):
            (self.place / f"verdicts-{r}").write_text("")
        error = None
        with Trainer(TorchConfig(timeout_s=60), num_workers=(RANKS, RANKS), max_retries=0,
                     quiet=True) as trainer:
            try:
                trainer.run(play_all, {"place": str(self.place), "names": wanted})
            except Exception as e:
                error = e
        rows = [s.split("\t") for s in (self.place / "verdicts-0").read_text().splitlines()]
        self.verdict.update({name: said for name, said in rows})
        over = [name for name in wanted if self.verdict.get(name, "begun") != "begun"]
        if error is not None:
            self.verdict[self._failed(wanted, over)] = f"failed: {type(error).__name__}: {error}"
        return [name for name in wanted if name not in self.verdict]

    def _failed(self, wanted: list[str], over: list[str]) -> str:
        """The first that some rank has not ended."""
        last = [(self.place / f"verdicts-{r}").read_text().splitlines() for r in range(RANKS)]
        begun = [rows[-1].split("\t")[0] for rows in last if rows and rows[-1].endswith("begun")]
        places = [wanted.index(name) for name in begun] or [len(over)]
        return wanted[min(places)]


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Matrix:
    wanted = [item.callspec.params["name"] for item in request.session.items
              if hasattr(item, "callspec") and "name" in item.callspec.params]
    return Matrix(tmp_path_factory.mktemp("matrix"), [n for n in wanted if n not in LISTED])


@pytest.fixture(autouse=True, scope="session")
def module_by_name() -> Iterator[None]:
    """The workers import play.py by its name."""
    import sys
    sys.path.insert(0, str(HERE))
    yield
    sys.path.remove(str(HERE))


@pytest.mark.parametrize("name", NAMES)
def test_of_torch(request: pytest.FixtureRequest, name: str) -> None:
    if name in LISTED:
        pytest.skip(LISTED[name])
    said = request.getfixturevalue("matrix").verdict[name]
    if said.startswith("skipped: "):
        pytest.skip(said.removeprefix("skipped: "))
    assert said == "passed", said


def test_the_list_is_up_to_date() -> None:
    """Nothing is listed that is not there."""
    assert not NAMES or set(LISTED) <= set(NAMES)

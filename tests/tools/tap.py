# SPDX-License-Identifier: Apache-2.0
"""A test script in Python: functions named test_*, one line of TAP each.

    from tap import main
    def test_it_adds() -> None:
        assert 1 + 1 == 2
    main(globals())

The script's arguments choose tests by name, as tests/runner.c does for programs in C: each is a
part of a name, or a glob of the whole name; -l in front prints the names. A script with arguments
of its own passes the rest of them to main.
"""

from __future__ import annotations

import fnmatch
import importlib.machinery
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent.parent

Test = Callable[[], None]


class Skip(Exception):
    """Raised by a test that cannot run here; the text is the reason."""


def load(path: str) -> ModuleType:
    """A script of the project, by its path from the root, as a module."""
    sys.dont_write_bytecode = True
    name = path.replace("/", "_").replace("-", "_")
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def verdict(number: int, name: str, test: Test) -> bool:
    """Runs one test, writes its line, and says whether it may stand."""
    try:
        test()
    except Skip as e:
        print(f"ok {number} - {name} # SKIP {e}", flush=True)
    except Exception:  # whatever a test raises is its failure
        print(f"not ok {number} - {name}")
        print(*(f"# {s}" for s in traceback.format_exc().splitlines()), sep="\n", flush=True)
        return False
    else:
        print(f"ok {number} - {name}", flush=True)
    return True


def fits(name: str, filter: str) -> bool:
    return fnmatch.fnmatchcase(name, filter) if set(filter) & set("*?[") else filter in name


def choose(tests: dict[str, Test], filters: list[str]) -> dict[str, Test]:
    chosen = {name: test for name, test in tests.items()
              if not filters or any(fits(name, f) for f in filters)}
    if not chosen:
        sys.exit(f"no test has such a name; -l lists the {len(tests)} names")
    return chosen


def main(names: dict[str, Any], arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    tests = {n.removeprefix("test_"): f for n, f in names.items() if n.startswith("test_")}
    if arguments[:1] == ["-l"]:
        print(*choose(tests, arguments[1:]), sep="\n")
        return
    chosen = choose(tests, arguments)
    print(f"1..{len(chosen)}", flush=True)
    verdicts = [verdict(i, name, test) for i, (name, test) in enumerate(chosen.items(), 1)]
    sys.exit(0 if all(verdicts) else 1)

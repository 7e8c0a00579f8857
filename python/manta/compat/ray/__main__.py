# SPDX-License-Identifier: Apache-2.0
"""python -m manta.compat.ray [-m module | script] [argument …]

Runs a program as Python itself does, and `import ray` in it gives manta. A script is a file, a
folder or an archive with a `__main__.py`, or the name of a Python command in PATH (pytest)."""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from manta.compat.ray import PATH, install

_kept = sys.modules["__main__"]  # this module, whose code is still running


def main() -> None:
    words = sys.argv[1:]
    if words[:1] in ([], ["-h"], ["--help"]):
        print(__doc__)
        sys.exit(0 if words else 2)
    install()
    before = os.environ.get("PYTHONPATH")  # of programs that this one starts
    os.environ["PYTHONPATH"] = PATH if not before else os.pathsep.join((PATH, before))
    if words[0] == "-m":
        if len(words) == 1:
            sys.exit("manta.compat.ray: -m needs the name of a module")
        sys.argv[:] = words[1:]
        run_module(words[1])
    else:
        sys.argv[:] = words
        run_script(words[0])


def run_module(name: str) -> None:
    """As `python -m name`, which calls the same function."""
    sys.modules["__main__"] = ModuleType("__main__")
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def run_script(name: str) -> None:
    path = _find(name)
    if path.is_dir() or _is_archive(path):
        _set_first_path(str(path))
        sys.modules["__main__"] = ModuleType("__main__")
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    _set_first_path(str(path.resolve().parent))
    with io.open_code(str(path)) as file:
        code = compile(file.read(), str(path), "exec", dont_inherit=True)
    _execute(code, _new_main(str(path)))


def _find(name: str) -> Path:
    """A file by its path; else a Python command."""
    path = Path(name)
    if not path.exists() and os.sep not in name and (command := shutil.which(name)):
        path, sys.argv[0] = Path(command), command
        with open(path, "rb") as file:
            first = file.readline()
        if not (first.startswith(b"#!") and b"python" in first):
            sys.exit(f"manta.compat.ray: {command} is not a Python program")
    if not path.exists():
        print(f"manta.compat.ray: cannot open {name}: there is no such file", file=sys.stderr)
        sys.exit(2)
    return path.absolute()


def _is_archive(path: Path) -> bool:
    import zipfile
    return zipfile.is_zipfile(path)


def _set_first_path(folder: str) -> None:
    """In the place of what `python -m` has put there: the current folder."""
    if sys.flags.safe_path:
        return
    sys.path[0] = folder


def _new_main(file: str) -> dict[str, Any]:
    """The namespace of a new `__main__`, as Python makes it for a script."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    space = vars(module)
    space.update(__builtins__=builtins, __cached__=None, __file__=file,
                 __loader__=importlib.machinery.SourceFileLoader("__main__", file))
    return space


def _execute(code: Any, space: dict[str, Any]) -> None:
    """Its traceback begins with the script."""
    try:
        exec(code, space)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as e:
        shown = e.__traceback__.tb_next if e.__traceback__ else None
        sys.excepthook(type(e), e.with_traceback(shown), shown)
        sys.exit(1)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Who may import whom in the package: fronts stand beside each other, and only one folder knows
PyTorch."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator

import pytest

import manta

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = Path(manta.__file__).parent
FILES = {str(p.relative_to(PACKAGE)): ast.parse(p.read_text()) for p in PACKAGE.rglob("*.py")}
SHARED = ("_front", "_frameworks", "_runtime", "_state")
FRONTS = (*manta._FRONTS, "_operator")  # the last is that of manta.util.sgd

# Where torch may be named outside of its folder, and why.
NAMED = {
    "__init__.py": "where pickles find TorchConfig",
    "_aliases.py": "paths of pickles of earlier versions",
    "_frameworks/__init__.py": "the table of frameworks",
    "_operator/__init__.py": "names of this front that are torch's",
    "_operator/creators.py": "a trainer of this front that is torch's",
    "_operator/trainer.py": "a trainer of this front that is torch's",
    "_frameworks/horovod/__init__.py": "what Horovod may be built for",
    "_frameworks/horovod/world.py": "what Horovod may be built for",
    "_names.py": "what to write instead of names that are not here",
    "compat/ray/names.py": "paths of torch's names in Ray",
    "data/dataset.py": "to_torch()",
    "tune/integration/_lightning.py": "a package of Lightning that is named so",
    "tune/integration/torch.py": "a part of this front that is torch's",
    "data/formats.py": "a format of batches",
    "sgd/__init__.py": "names of this front that are torch's",
    "train/__init__.py": "names of this front that are torch's",
    "train/torch.py": "a part of this front that is torch's",
}


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports, in functions and for type checkers as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def texts(tree: ast.AST) -> Iterator[str]:
    """Strings that are not documentation."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (
                id(node) not in documentation):
            yield node.value


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def is_torch(word: str) -> bool:
    """The name of the framework, or a path with it; messages for people are none."""
    return re.fullmatch(r"[\w.]+", word) is not None and bool(
        {"torch", "pytorch"} & set(word.split(".")))


def test_the_files_are_there() -> None:
    assert len(FILES) > 50 and all(f"{front}/__init__.py" in FILES for front in manta._FRONTS)
    assert all(any(path.startswith(f"{folder}/") for path in FILES) for folder in SHARED)


@pytest.mark.parametrize("front", FRONTS)
def test_a_front_is_imported_by_no_other_and_by_nothing_that_they_share(front: str) -> None:
    for path, tree in FILES.items():
        folder = path.partition("/")[0]
        if folder != front and folder in (*FRONTS, *SHARED):
            found = [m for m in (*imports(tree), *texts(tree))
                     if re.match(rf"manta\.{front}(\.\w+)*$", m)]
            assert not found, f"{path} names {found}"


def test_torch_is_named_in_its_folder_alone() -> None:
    for path, tree in FILES.items():
        found = [w for w in (*imports(tree), *texts(tree), *names(tree)) if is_torch(w)]
        if path not in NAMED and not path.startswith("_frameworks/torch/"):
            assert not found, f"{path} names {found}"
        assert found or path not in NAMED, f"{path} need not be an exception any more"


def test_only_the_parts_of_torch_import_torch() -> None:
    for path, tree in FILES.items():
        found = [m for m in imports(tree) if m.partition(".")[0] == "torch"]
        assert not found or path.startswith("_frameworks/torch/"), f"{path} imports {found}"


def test_the_design_names_files_that_are_there() -> None:
    text = (ROOT / "DESIGN.md").read_text()
    paths = re.findall(r"`(manta/_[\w./]+)`", text)
    modules = re.findall(r"`manta\.(_[\w.]+)`", text)
    assert len(paths) > 5 and modules
    for path in (*(p.removeprefix("manta/") for p in paths),
                 *(f"{m.replace('.', '/')}.py" for m in modules)):
        assert (PACKAGE / path).exists(), path

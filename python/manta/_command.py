# SPDX-License-Identifier: Apache-2.0
"""The command `manta` of an environment: the one that came with the package."""

from __future__ import annotations

import os
import sys

from manta import _manta


def path() -> str:
    """Beside the extension where that is installed; in a build tree, where it was built."""
    here = os.path.dirname(os.path.abspath(_manta.__file__))
    for place in ("bin/manta", "../src/cmd/manta"):
        command = os.path.normpath(os.path.join(here, place))
        if os.access(command, os.X_OK):
            return command
    raise SystemExit(f"manta: the command is not in {here}: install manta-train again")


def main() -> None:
    """Becomes the command, whose scripts are run by this interpreter."""
    os.environ.setdefault("MANTA_PYTHON", sys.executable)
    command = path()
    os.execv(command, [command, *sys.argv[1:]])

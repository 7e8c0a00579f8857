#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/meson.py ARGS... - Meson as pip uses it (pyproject.toml).

That of pip's build environment. An editable install is built again when it is imported after a
change, and by then that environment is gone: then it is the one of scripts/meson, of the same
version.
"""

from __future__ import annotations

import os
import sys

try:
    from mesonbuild.mesonmain import main
except ImportError:
    meson = os.path.join(os.path.dirname(os.path.abspath(__file__)), "meson")
    os.execv(meson, [meson, *sys.argv[1:]])

if __name__ == "__main__":
    sys.exit(main())

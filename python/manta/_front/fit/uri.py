# SPDX-License-Identifier: Apache-2.0
"""Where something lies: a path, or a URI of this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def local_path(name: str, given: Any) -> Path:
    """The absolute path of a path or of file://…; `name`: of the argument, for messages."""
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise TypeError(f"{name} must be a path, not {given!r}")
    text = os.fspath(given)
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path, not {given!r}")
    if "://" not in text:
        return Path(text).expanduser().absolute()
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ValueError(f"{name}={text!r}: only paths and file:// are supported; s3:// and others "
                         f"come with manta.data\nhint: a directory that all hosts have mounted")
    return Path(unquote(parts.path))


def uri_of(path: Path) -> str:
    return path.as_uri()

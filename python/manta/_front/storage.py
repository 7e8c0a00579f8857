# SPDX-License-Identifier: Apache-2.0
"""Where something lies: a path, file://, or a URI of a store, of which a directory of this host is
the staging directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from manta import _manta

FETCHED = ".fetched"  # in a directory that was downloaded


def text_of(name: str, given: Any) -> str:
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise TypeError(f"{name} must be a path, not {given!r}")
    text = os.fspath(given)
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path, not {given!r}")
    return text


def stored_at(name: str, given: Any) -> str | None:
    """The URI of a store, without slashes at its end; None: a path, or file://."""
    text = text_of(name, given)
    if "://" not in text or text.startswith("file://"):
        return None
    try:
        _manta.storage_check(text)
    except Exception as e:
        raise ValueError(f"{name}={text!r}: {e}") from None
    return text.rstrip("/")


def path_at(name: str, given: Any) -> Path:
    """The absolute path of a path or of file://…"""
    text = text_of(name, given)
    if "://" not in text:
        return Path(text).expanduser().absolute()
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ValueError(f"{name}={text!r}: must be a path of this host, or file://\n"
                         f"hint: Checkpoint.from_uri() and storage_path take s3:// as well")
    return Path(unquote(parts.path))


def staged(name: str, given: Any) -> Path:
    """The path, or the staging directory of a URI; nothing is brought there."""
    uri = stored_at(name, given)
    return path_at(name, given) if uri is None else Path(_manta.storage_local(uri))


def fetched(name: str, given: Any) -> Path:
    """The path, or the staging directory of a URI with what lies under it."""
    uri = stored_at(name, given)
    return path_at(name, given) if uri is None else Path(_manta.storage_fetch(uri))


def is_foreign(path: Path) -> bool:
    """Whether it was downloaded: others may have written it."""
    return any((p / FETCHED).exists() for p in (path, *path.parents))


def check_trust(path: Path, trust: bool) -> None:
    if not trust and is_foreign(path):
        raise PermissionError(f"{path} was downloaded, and going on with it runs the code that "
                              f"whoever wrote it put into its pickles\n"
                              f"hint: restore(…, trust=True) if it is yours")

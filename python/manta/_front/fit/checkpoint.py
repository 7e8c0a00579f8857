# SPDX-License-Identifier: Apache-2.0
"""The state of a training as an object: a dict in memory, a checkpoint of a run, or a directory of
the user's own files.

(1) It is one of three: `_data`, a dict; `_handle`, a checkpoint of libmanta that is mapped;
    `_path`, a directory. One of a finished run has a handle and a path.
(2) A directory with a manifest.json is one that manta wrote, and holds a dict; any other is the
    user's own, and manta does not look into it.
(3) Nothing is unpickled unless it comes from the own run, from the results of this user, or with
    the user's word (trust=True). What holds nothing but plain values, arrays and tensors can be
    read without: no code of a writer's choice is called for these.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
import weakref
import zipfile
from pathlib import Path
from typing import Any, Iterator, Self

from manta import _manta
from manta._front import storage as _storage
from manta._front.fit import files as _files
from manta._names import public

MANIFEST = "manifest.json"
_OURS = (MANIFEST, "state.safetensors", "value.msgpack")  # what manta writes; the manifest first
METADATA = ".metadata.json"  # beside the user's files
PACKED = "_fs_checkpoint"  # of a directory as a dict: its bytes
DIRECTORY = "manta.directory.1"  # format of the checkpoint of a run that stands for a directory
WHERE = "place"  # of that directory: the one it lies in
TIMESTAMP, PREPROCESSOR, ID = "_timestamp", "_preprocessor", "_current_checkpoint_id"


@public
class Checkpoint:
    """Checkpoint.from_dict({"epoch": 3, …}), or Checkpoint(path) = Checkpoint.from_directory(path),
    a directory of files. report(metrics, checkpoint=…) saves one; move=True: its directory may be
    moved into the run's instead of being copied, as one below the directory for temporary files
    is."""

    _data: dict[Any, Any] | None = None
    _handle: _manta.Checkpoint | None = None
    _path: Path | None = None
    _trust = False
    _move = False
    _id: int | None = None  # of a directory: its number in the run that saved it

    def __init__(self, path: str | os.PathLike[str], *, trust: bool = False, move: bool = False):
        if isinstance(path, dict):
            raise TypeError("Checkpoint takes a directory, not a dict\n"
                            "hint: Checkpoint.from_dict({…})")
        self._path, self._trust, self._move = _storage.path_at("path", path), trust, move

    @classmethod
    def _made(cls, **parts: Any) -> Self:
        made = cls.__new__(cls)
        for name, value in parts.items():
            setattr(made, f"_{name}", value)
        return made

    @classmethod
    def _of(cls, handle: _manta.Checkpoint, checkpoints: Path, trust: bool,
            path: Path | None = None) -> Self:
        """One of a run, whose directory of them is `checkpoints`, in its place there."""
        value = handle.value()
        if isinstance(value, dict) and value.get("format") == DIRECTORY:
            return cls._made(path=checkpoints / Path(value["directory"]).name, id=value[ID])
        return cls._made(handle=handle, path=path, trust=trust)

    def _is_users(self) -> bool:
        """Whether it is a directory of the user's own."""
        return self._path is not None and self._handle is None and not self._is_manta()

    # --- a dict -----------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, data: dict[Any, Any]) -> Self:
        """One that holds these entries."""
        if not isinstance(data, dict):
            raise TypeError(f"Checkpoint.from_dict takes a dict, not {type(data).__name__}")
        if isinstance(data.get(PACKED), bytes):
            return cls.from_bytes(data[PACKED])
        return cls._made(data=data)

    def to_dict(self) -> dict[Any, Any]:
        """Its entries. Those of a saved one lie in its mapping: nothing is copied until it is
        written to. Of one that ranks saved parts of, with save_checkpoint(…, sharded=True), in a
        worker its own part; where there is no such, rank 0's, and in it whole tensors."""
        return self._read(models=True)

    def _read(self, models: bool) -> dict[Any, Any]:
        """models: whether those of Keras are made, or None stands for each."""
        if self._data is not None:
            return dict(self._data)
        if self._is_users():
            return {PACKED: self.to_bytes()}
        from manta import _state
        place = _manta.place()[:2] if _manta.in_session() else None
        found = _state.restore(self._open(), self._is_trusted(), None, place, data_only=True,
                               models=models)
        if self._is_in_parts() and isinstance(found, list):
            found = found[0]
        if not isinstance(found, dict):
            raise TypeError(f"the checkpoint holds a {type(found).__name__}, not a dict\n"
                            f"hint: load_checkpoint() in a worker, or "
                            f"Trainer.get_last_checkpoint(), gives it")
        return found

    def _open(self) -> _manta.Checkpoint:
        return self._handle or _manta.open_checkpoint(str(self._path), True)

    def _is_in_parts(self) -> bool:
        value = self._open().value()
        return isinstance(value, dict) and "sharded" in value

    def _is_trusted(self) -> bool:
        return self._trust or (self._path is not None and _is_own(self._path))

    def _is_manta(self) -> bool:
        """Whether its directory is one that manta wrote, with a dict in it."""
        return self._path is not None and (self._path / MANIFEST).is_file()

    # --- a directory ------------------------------------------------------------------------------

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str], *, trust: bool = False,
                       move: bool = False) -> Self:
        """One that is a directory."""
        return cls(path, trust=trust, move=move)

    def __fspath__(self) -> str:
        """Where programs take a checkpoint for its directory: os.path.join(checkpoint, name)."""
        return self.path

    @property
    def value(self) -> str:
        """The path, by the name that it had in Ray 1."""
        return self.path

    dir_or_data = value

    @property
    def path(self) -> str:
        """Of its directory. A dict in memory has none."""
        if self._path is None:
            raise AttributeError("a checkpoint that is a dict in memory has no path\n"
                                 "hint: to_directory() writes it to one")
        return str(self._path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Its directory, or a dict as one, written to `path` or a new temporary directory. A dict
        takes the place of one that is there."""
        to = Path(tempfile.mkdtemp(prefix="checkpoint_")) if path is None else _storage.path_at(
            "path", path)
        if self._path is not None:
            if not self._path.is_dir():
                raise FileNotFoundError(f"the checkpoint's directory {self._path} is gone")
            if to != self._path:
                _files.clone(self._path, to)
            return str(to)
        from manta import _state
        data = self._data if self._data is not None else self.to_dict()
        for name in _OURS:
            (to / name).unlink(missing_ok=True)
        _state.write_dir(data, to)
        return str(to)

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Its directory, or a temporary one that is removed at the end."""
        if self._path is not None:
            yield str(self._path)
            return
        made = self.to_directory()
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    # --- bytes ------------------------------------------------------------------------------------

    @classmethod
    def from_bytes(cls, data: bytes, *, trust: bool = False) -> Self:
        """What to_bytes() gave."""
        place = Path(tempfile.mkdtemp(prefix="checkpoint_"))
        made = cls._made(path=place, trust=trust)
        weakref.finalize(made, shutil.rmtree, place, ignore_errors=True)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                archive.extractall(place)  # nothing outside of it, and no links
        except zipfile.BadZipFile as e:
            raise ValueError(f"these are not the bytes of a checkpoint: {e}") from None
        return made

    def to_bytes(self) -> bytes:
        """Its directory as a zip archive, not compressed."""
        out = io.BytesIO()
        with self.as_directory() as place, zipfile.ZipFile(out, "w") as archive:
            for path in sorted(Path(place).rglob("*")):
                archive.write(path, path.relative_to(place))
        return out.getvalue()

    # --- URIs -------------------------------------------------------------------------------------

    @classmethod
    def from_uri(cls, uri: str, *, trust: bool = False) -> Self:
        """One at file:///path or s3://BUCKET/PREFIX, which is downloaded."""
        if _storage.stored_at("uri", uri) is None:
            return cls._made(path=_storage.path_at("uri", uri), trust=trust)
        place = Path(tempfile.mkdtemp(prefix="checkpoint_"))
        made = cls._made(path=place, trust=trust)
        weakref.finalize(made, shutil.rmtree, place, ignore_errors=True)
        _manta.storage_download(uri, str(place))
        return made

    def to_uri(self, uri: str) -> str:
        """Writes it there: file:///path or s3://BUCKET/PREFIX."""
        stored = _storage.stored_at("uri", uri)
        if stored is None:
            return Path(self.to_directory(_storage.path_at("uri", uri))).as_uri()
        with self.as_directory() as place:
            _manta.storage_upload(place, stored)
        return stored

    @property
    def uri(self) -> str | None:
        return None if self._path is None else self._path.as_uri()

    # --- what else --------------------------------------------------------------------------------

    @classmethod
    def from_checkpoint(cls, other: Checkpoint) -> Self:
        """The same one as an object of this class."""
        return cls._made(**{k.removeprefix("_"): v for k, v in vars(other).items()})

    def get_internal_representation(self) -> tuple[str, Any]:
        """("data_dict", dict) or ("local_path", path)."""
        if self._path is not None:
            return "local_path", str(self._path)
        return "data_dict", self.to_dict()

    def _entries(self) -> dict[Any, Any]:
        """Of a dict; those of a directory are none of ours."""
        return {} if self._is_users() else self._read(models=False)

    def get_preprocessor(self) -> Any:
        """What the trainer was given as `preprocessor`, or None."""
        return self._entries().get(PREPROCESSOR)

    def _number(self) -> int | None:
        """Its number in the run that saved it; None: it has none."""
        number = self._id if self._id is not None else self._entries().get(ID)
        return number if isinstance(number, int) else None

    def get_metadata(self) -> dict[str, Any]:
        """What set_metadata, or `metadata` of the trainer, has put there."""
        if self._path is not None:
            try:
                found: dict[str, Any] = json.loads((self._path / METADATA).read_text())
                return found
            except FileNotFoundError:
                pass
        return dict(self._entries().get("_metadata") or {})

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """A dict that JSON can hold, in the place of what was there."""
        text = json.dumps(metadata)
        if self._path is not None:
            (self._path / METADATA).write_text(text)
        else:
            self._data = {**self.to_dict(), "_metadata": json.loads(text)}

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def __repr__(self) -> str:
        kind = type(self).__name__
        if self._path is not None:
            return f"{kind}(path={str(self._path)!r})"
        if self._data is not None:
            return f"<{kind} of a dict with {', '.join(map(str, list(self._data)[:8]))}>"
        return f"<{kind} of this run>"

    def __getstate__(self) -> dict[str, Any]:
        """A mapping does not travel: what it holds does, or the path of the same."""
        if self._path is None:
            return {"_data": self.to_dict()}
        return {"_path": str(self._path), "_trust": self._is_trusted(), "_move": self._move,
                "_id": self._id}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._path is not None:
            self._path = Path(self._path)


def _is_own(path: Path) -> bool:
    """Whether it lies among the results of this user, who then has written it."""
    home = Path(_manta.knob("MANTA_RESULTS") or "~/manta_results").expanduser()
    try:
        found = path.resolve()
        return (found.is_relative_to(home.resolve()) and found.stat().st_uid == os.geteuid()
                and not _storage.is_foreign(found))
    except OSError:
        return False

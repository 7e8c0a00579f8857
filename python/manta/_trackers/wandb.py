# SPDX-License-Identifier: Apache-2.0
"""A run of Weights & Biases, by the user's wandb package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_OPTIONS = ("project", "entity", "group", "tags", "mode", "name")


class Run:
    def __init__(self) -> None:
        self._run: Any = None
        self._excluded: frozenset[str] = frozenset()
        self._checkpoints: Path | None = None  # the run's directory, if they are sent

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["call"] == "open":
            self._open(asked)
        elif asked["call"] == "rows":
            for row in asked["rows"]:
                self._log(row)
        elif asked["call"] == "finish":
            self.leave(failed=asked["failed"])
        return {}

    def _open(self, asked: dict[str, Any]) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        os.environ.setdefault("WANDB_DISABLE_CODE", "true")
        options = {k: v for k, v in asked["options"].items() if v is not None}
        if (key := options.get("api_key_file")) is not None:
            os.environ["WANDB_API_KEY"] = Path(key).read_text().strip()
        import wandb
        self._excluded = frozenset(options.get("excludes", ()))
        self._checkpoints = Path(asked["dir"]) if options.get("upload_checkpoints") else None
        config = {k: v for k, v in asked["config"].items() if k not in self._excluded}
        self._run = wandb.init(**{
            "name": asked["name"], "dir": asked["dir"], **options.get("init", {}),
            **{k: v for k, v in options.items() if k in _OPTIONS},
            "id": asked["id"], "resume": "allow", "config": config})

    def _log(self, row: dict[str, Any]) -> None:
        values = {k: _value(v) for k, v in row["values"].items() if k not in self._excluded}
        self._run.log({**values, "_timestamp": row["time"]}, step=row["step"])

    def leave(self, failed: bool = True) -> None:
        """A run that did not end by itself counts as crashed, until it is resumed."""
        run, self._run = self._run, None
        if run is None:
            return
        if not failed:
            self._upload(run)
        run.finish(exit_code=1 if failed else 0)

    def _upload(self, run: Any) -> None:
        import wandb
        folder = self._checkpoints
        for path in sorted(folder.glob("checkpoints/[0-9]*")) if folder is not None else []:
            artifact = wandb.Artifact(f"checkpoint_{run.id}", type="model")
            artifact.add_dir(str(path))
            run.log_artifact(artifact, aliases=[path.name])


def _value(v: Any) -> Any:
    """JSON has no NaN, so it comes as its name."""
    return float(v) if v in ("NaN", "Infinity", "-Infinity") else v

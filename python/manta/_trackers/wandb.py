# SPDX-License-Identifier: Apache-2.0
"""A run of Weights & Biases, by the user's wandb package."""

from __future__ import annotations

import os
from typing import Any

_OPTIONS = ("project", "entity", "group", "tags", "mode", "name")


class Run:
    def __init__(self) -> None:
        self._run: Any = None

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
        import wandb
        given = {k: v for k, v in asked["options"].items() if k in _OPTIONS and v is not None}
        self._run = wandb.init(id=asked["id"], resume="allow", dir=asked["dir"],
                               config=asked["config"],
                               **{"name": asked["name"], **given})

    def _log(self, row: dict[str, Any]) -> None:
        values = {k: _value(v) for k, v in row["values"].items()}
        self._run.log({**values, "_timestamp": row["time"]}, step=row["step"])

    def leave(self, failed: bool = True) -> None:
        """A run that did not end by itself counts as crashed, until it is resumed."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=1 if failed else 0)


def _value(v: Any) -> Any:
    """JSON has no NaN, so it comes as its name."""
    return float(v) if v in ("NaN", "Infinity", "-Infinity") else v

# SPDX-License-Identifier: Apache-2.0
"""Callbacks for a Trainer of (PyTorch) Lightning inside of a trial."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manta.tune import _session

if TYPE_CHECKING:
    Callback: Any = object
elif "lightning" in sys.modules and "pytorch_lightning" not in sys.modules:
    from lightning.pytorch import Callback
else:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError:
        from lightning.pytorch import Callback

_HOOKS = [name for name in dir(Callback) if name.startswith("on_")]


class TuneCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Does something at one of Lightning's hooks, or at several: "validation_end", "train_end"."""

    def __init__(self, on: str | Sequence[str] = "validation_end"):
        names = [on] if isinstance(on, str) else list(on)
        self._on = [n if n.startswith("on_") else f"on_{n}" for n in names]
        unknown = [n for n in self._on if n not in _HOOKS]
        if unknown:
            raise ValueError(f"Lightning has no hook {unknown[0]!r}\n"
                             f"hint: one of {', '.join(h[3:] for h in _HOOKS)}")

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        raise NotImplementedError


def _hook(name: str) -> Any:
    def call(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        if name in self._on:
            self._handle(trainer, pl_module)
    call.__name__ = name
    return call


for _name in _HOOKS:
    if _name not in ("on_save_checkpoint", "on_load_checkpoint"):
        setattr(TuneCallback, _name, _hook(_name))


class TuneReportCallback(TuneCallback):
    """Reports metrics of the Lightning Trainer, under the same names or others: {"loss":
    "val_loss"}. Without metrics: all that it has logged."""

    def __init__(self, metrics: Any = None, on: str | Sequence[str] = "validation_end"):
        super().__init__(on)
        named = metrics if isinstance(metrics, dict) else None
        self._metrics = named or {m: m for m in ([metrics] if isinstance(metrics, str)
                                                 else metrics or ())}

    def _row(self, trainer: Any) -> dict[str, Any]:
        """Empty: nothing to report yet."""
        if trainer.sanity_checking:
            return {}
        logged = {k: v.item() if hasattr(v, "item") else v
                  for k, v in trainer.callback_metrics.items()}
        wanted = self._metrics or {k: k for k in logged}
        return {ours: logged[theirs] for ours, theirs in wanted.items() if theirs in logged}

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        if row := self._row(trainer):
            _session.report(row)


class TuneReportCheckpointCallback(TuneReportCallback):
    """The same, with a checkpoint of Lightning's in the file `filename`."""

    def __init__(self, metrics: Any = None, filename: str = "checkpoint",
                 on: str | Sequence[str] = "validation_end", save_checkpoints: bool = True):
        super().__init__(metrics, on)
        self._filename, self._saves = filename, save_checkpoints

    def _handle(self, trainer: Any, pl_module: Any) -> None:
        row = self._row(trainer)
        if not row:
            return
        if self._saves:
            with _session.checkpoint_dir() as where:
                trainer.save_checkpoint(str(Path(where, self._filename)))
        _session.report(row)

# SPDX-License-Identifier: Apache-2.0
"""A callback for a Trainer that a trial makes."""

from __future__ import annotations

from typing import Any, NoReturn

from manta._front import refuse as _refuse
from manta._front.callbacks import TrainingCallback
from manta.tune import _session

__all__ = ["TuneReportCallback"]

__path__: list[str] = []  # so that `from … import Missing` asks for a module, and is told


class TuneReportCallback(TrainingCallback):
    """What rank 0 of the Trainer reports is a report of the trial:
    TorchTrainer(…, run_config=RunConfig(callbacks=[TuneReportCallback()]))."""

    def handle_result(self, results: list[dict[str, Any] | None], **info: Any) -> None:
        if _session.is_session_enabled() and results and results[0] is not None:
            _session.report({k: v for k, v in results[0].items() if not k.startswith("_")})


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

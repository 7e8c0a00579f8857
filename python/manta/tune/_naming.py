# SPDX-License-Identifier: Apache-2.0
"""Directories of trials that have names of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_USUAL = "trial_"  # and the number
_NUMBER = ".number"  # in other directories: a link to the number


def tag_of(number: int, config: Any) -> str:
    """5_lr=0.1,layers=2"""
    named = config.items() if isinstance(config, dict) else ()
    return f"{number}_" + ",".join(f"{k}={v}" for k, v in named)


class Newborn:
    """A trial that is about to be made, for who names it."""

    status, last_result = "PENDING", dict[str, Any]()

    def __init__(self, number: int, config: Any, trainable_name: str):
        self.number, self.trial_id = number, f"{number:05}"
        self.config = self.evaluated_params = config
        self.trainable_name = trainable_name

    @property
    def experiment_tag(self) -> str:
        """The number, and the config in a line."""
        return tag_of(self.number, self.config)

    def __str__(self) -> str:
        return f"{_USUAL}{self.trial_id}"


def namer(creator: Any, trainable_name: str) -> Callable[[int, Any], str] | None:
    """trial_dirname_creator as libmanta asks it; what can be no directory it refuses itself."""
    if creator is None:
        return None
    if not callable(creator):
        raise TypeError(f"trial_dirname_creator must be a function of a trial, not {creator!r}")

    def name(number: int, config: Any) -> str:
        trial = Newborn(number, config, trainable_name)
        found = creator(trial)
        if not isinstance(found, str):
            raise TypeError(f"trial_dirname_creator must give a name, not {found!r}")
        if _is_usual(found) and found != str(trial):
            raise ValueError(f"trial_dirname_creator gives trial {number} the directory {found}, "
                             f"which is that of another trial")
        return found
    return name


def _is_usual(name: str) -> bool:
    return name.startswith(_USUAL) and name[len(_USUAL):].isdecimal()


def number_in(directory: str) -> str:
    """The id of the trial whose directory it is."""
    name = directory.rpartition("/")[2]
    if _is_usual(name):
        return name[len(_USUAL):]
    try:
        return os.readlink(os.path.join(directory, _NUMBER))
    except OSError:  # no trial's
        return name.rpartition("_")[2]

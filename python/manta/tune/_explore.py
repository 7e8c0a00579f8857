# SPDX-License-Identifier: Apache-2.0
"""The config of a trial that takes over the state of a better one: that one's, changed a little."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from manta.tune import _space as space

Config = dict[str, Any]


def check_mutations(given: Any) -> None:
    """A TypeError for what Mutations cannot draw from."""
    if not isinstance(given, dict):
        raise TypeError(f"hyperparam_mutations must be a dict, not {given!r}")
    for key, how in given.items():
        if isinstance(how, dict):
            check_mutations(how)
        elif not (callable(how) or isinstance(how, (list, tuple, space.Domain))):
            raise TypeError(f"hyperparam_mutations: {key} must be a list, a domain such as "
                            f"tune.uniform(0, 1), a function or a dict of these, not {how!r}")


class Mutations:
    """hyperparam_mutations: only what it names is changed. A list: the value beside; a domain or a
    function: a new draw, or the value times one of `factors`."""

    def __init__(self, given: dict[str, Any], resample: float, factors: tuple[float, float],
                 custom: Callable[[Config], Config] | None):
        self.given, self._resample, self._factors, self._custom = given, resample, factors, custom
        self._random = random.Random()

    def seed(self, seed: int) -> None:
        self._random = random.Random(seed)

    def complete(self, config: Config) -> Config:
        """The space with what it lacks of these."""
        return _complete(config, self.given)

    def __call__(self, number: int, config: Config) -> Config:
        changed = self._explore(copy.deepcopy(config), self.given)
        if self._custom is not None:
            changed = self._custom(changed)
            if not isinstance(changed, dict):
                raise TypeError(f"custom_explore_fn must return a config, not {changed!r}")
        return changed

    def _explore(self, config: Config, mutations: dict[str, Any]) -> Config:
        for key, how in mutations.items():
            if isinstance(how, dict):
                config[key] = self._explore(config.get(key) or {}, how)
            else:
                config[key] = self._changed(config.get(key), how)
        return config

    def _changed(self, value: Any, how: Any) -> Any:
        anew = value is None or self._random.random() < self._resample
        if isinstance(how, (list, tuple)):
            if anew or value not in how:
                return self._random.choice(how)
            beside = how.index(value) + self._random.choice((-1, 1))
            return how[min(max(beside, 0), len(how) - 1)]
        if anew or isinstance(value, (str, bool)) or not isinstance(value, (int, float)):
            return self._drawn(how)
        return type(value)(value * self._random.choice(self._factors))

    def _drawn(self, how: Any) -> Any:
        if isinstance(how, space.Domain):
            return how.sample(seed=self._random.getrandbits(63))
        return how()


def _complete(config: Config, mutations: dict[str, Any]) -> Config:
    out = dict(config)
    for key, how in mutations.items():
        if isinstance(how, dict) and isinstance(out.get(key, {}), dict):
            out[key] = _complete(out.get(key, {}), how)
        elif key not in out:
            out[key] = (space.choice(how) if isinstance(how, (list, tuple))
                        else how if isinstance(how, space.Domain) else space.sample_from(how))
    return out

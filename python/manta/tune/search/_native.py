# SPDX-License-Identifier: Apache-2.0
"""The searchers of libmanta."""

from __future__ import annotations

from typing import Any

from manta import _manta
from manta.tune import _space as _space
from manta.tune._analysis import value_of
from manta.tune.search._searcher import Config, Searcher


_POINTS = 1 << 40  # numbers of draws that are no trial's


class _Native(Searcher):
    """Searches in C. Around it (ConcurrencyLimiter, Repeater) it is asked from Python as any other
    searcher is; alone the engine asks it, without a detour."""

    native = ""

    def __init__(self, space: Config | None = None, metric: str | None = None,
                 mode: str | None = None, *, seed: int | None = None, **options: Any):
        super().__init__(metric, mode)
        self.space, self.seed = space, seed
        self._options = {k: v for k, v in options.items() if v is not None}
        self._search: _manta.Search | None = None
        self._calls: list[Any] = []
        self._numbers: dict[str, int] = {}

    def options(self) -> dict[str, Any]:
        """For libmanta."""
        return dict(self._options)

    def set_search_properties(self, metric: Any, mode: Any, config: Config,
                              **spec: Any) -> bool:
        super().set_search_properties(metric, mode, config, **spec)
        if self.space is not None and config:
            return False
        self.space = self.space or config
        if self.seed is None:
            self.seed = spec.get("seed")
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        if self._search is None:
            spec = _space.spec_of(dict(self.space or {}), self._calls)
            self._search = _manta.Search(self.native, spec, self._options, self.seed or 0)
        number = self._numbers.setdefault(trial_id, len(self._numbers))
        return _space.fill_in(self._proposed(self._search, number), self._calls)

    def _proposed(self, search: _manta.Search, number: int) -> Config:
        return search.propose(number)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None,
                          error: bool = False) -> None:
        if self._search is None or trial_id not in self._numbers:
            return
        value = None if error or not result or self.metric is None else value_of(
            result, self.metric)
        worst = float("inf")
        signed = worst if value is None else -value if self.mode == "max" else value
        self._search.observe(self._numbers[trial_id], signed)

    def get_state(self) -> dict[str, Any]:
        raise TypeError(f"{type(self).__name__} is made again by its calls: resume the experiment "
                        f"instead")


class BasicVariantGenerator(_Native):
    """At random, and grids in order: what tune.run does without a search_alg. points_to_evaluate
    are the first of num_samples; what they leave open is drawn."""

    native = "random"

    def __init__(self, points_to_evaluate: list[Config] | None = None, max_concurrent: int = 0,
                 random_state: int | None = None, constant_grid_search: bool = False):
        super().__init__(seed=random_state)
        self.points, self.max_concurrent = points_to_evaluate or [], max_concurrent

    def _proposed(self, search: _manta.Search, number: int) -> Config:
        after = number - len(self.points)
        if after >= 0:  # grids begin there
            return search.propose(after)
        return _laid_over(search.propose(_POINTS + number), self.points[number])


def _laid_over(config: Config, point: Config) -> Config:
    """What a point does not say is drawn."""
    out = dict(config)
    for key, value in point.items():
        below = out.get(key)
        nested = isinstance(below, dict) and isinstance(value, dict) and "$call" not in below
        out[key] = _laid_over(below, value) if nested and below else value
    return out


RandomSearch = BasicVariantGenerator


class TPESearch(_Native):
    """Parzen estimators over all parameters together. n_startup: trials at random before; n_ei:
    candidates that are compared for every proposal."""

    native = "tpe"

    def __init__(self, space: Config | None = None, metric: str | None = None,
                 mode: str | None = None, *, n_startup: int | None = None,
                 n_ei: int | None = None, seed: int | None = None):
        super().__init__(space, metric, mode, seed=seed, startup=n_startup, candidates=n_ei)


class CMAESSearch(_Native):
    """Evolution of a covariance matrix and of the odds of options: many trials."""

    native = "cmaes"

    def __init__(self, space: Config | None = None, metric: str | None = None,
                 mode: str | None = None, *, sigma: float | None = None,
                 population: int | None = None, seed: int | None = None):
        super().__init__(space, metric, mode, seed=seed, sigma=sigma, population=population)


class GPSearch(_Native):
    """A Gaussian process with expected improvement: few, expensive trials."""

    native = "gp"

    def __init__(self, space: Config | None = None, metric: str | None = None,
                 mode: str | None = None, *, n_startup: int | None = None,
                 seed: int | None = None):
        super().__init__(space, metric, mode, seed=seed, startup=n_startup)

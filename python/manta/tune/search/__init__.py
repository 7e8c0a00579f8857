# SPDX-License-Identifier: Apache-2.0
"""Searchers: which configs an experiment tries."""

from typing import Any, NoReturn

from manta._front import refuse as _refuse
from manta.tune.search._native import (BasicVariantGenerator, CMAESSearch, GPSearch, RandomSearch,
                                      TPESearch)
from manta.tune.search._optuna import OptunaSearch
from manta.tune.search._searcher import ConcurrencyLimiter, Repeater, Searcher

__all__ = ["BasicVariantGenerator", "CMAESSearch", "ConcurrencyLimiter", "GPSearch", "OptunaSearch",
           "RandomSearch", "Repeater", "Searcher", "TPESearch", "create_searcher"]


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher:
    """By name: "random", "tpe", "cmaes", "gp", "optuna"."""
    known: dict[str, type[Searcher]] = {
        "random": BasicVariantGenerator, "variant_generator": BasicVariantGenerator,
        "tpe": TPESearch, "hyperopt": TPESearch, "cmaes": CMAESSearch, "gp": GPSearch,
        "bayesopt": GPSearch, "optuna": OptunaSearch}
    if search_alg not in known:
        raise ValueError(f"there is no searcher {search_alg!r}; there are: {', '.join(known)}")
    return known[search_alg](**kwargs)


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

# SPDX-License-Identifier: Apache-2.0
"""The real Optuna, asked for configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from manta.tune import _space as _space
from manta.tune._analysis import value_of
from manta.tune.search._searcher import Config, Searcher


class OptunaSearch(Searcher):
    """space: one of tune's, a dict of Optuna's distributions, or a function of an Optuna trial that
    calls its suggest_*() and may return further entries of the config. metric and mode may be
    lists, of as many objectives. sampler: one of Optuna's; without one, its default (TPE).
    points_to_evaluate are tried first; with evaluated_rewards they are known, and not tried."""

    def __init__(self, space: Any = None, metric: Any = None, mode: Any = None,
                 points_to_evaluate: list[Config] | None = None, sampler: Any = None,
                 seed: int | None = None, evaluated_rewards: list[Any] | None = None,
                 study_name: str | None = None, storage: Any = None):
        super().__init__(metric, mode)
        if isinstance(metric, (list, tuple)) and len(metric) != len(mode or ()):
            raise ValueError(f"{len(metric)} metrics need as many modes, not {mode!r}")
        if evaluated_rewards is not None and len(evaluated_rewards) != len(
                points_to_evaluate or ()):
            raise ValueError("evaluated_rewards must have a value for each of points_to_evaluate")
        self.space, self.sampler, self.seed = space, sampler, seed
        self._points, self._rewards = points_to_evaluate or [], evaluated_rewards
        self._study_name, self._storage = study_name, storage
        self._study: Any = None
        self._trials: dict[str, Any] = {}

    def set_search_properties(self, metric: Any, mode: Any, config: Config, **spec: Any) -> bool:
        super().set_search_properties(self.metric or metric, self.mode or mode, config, **spec)
        if self.seed is None:
            self.seed = spec.get("seed")
        if self.space is not None:
            return not config
        self.space = config
        if not callable(config):
            _flat(config)  # says at once what it cannot search
        _optuna()
        return True

    # --- the study --------------------------------------------------------------------------------

    def _open(self) -> Any:
        optuna = _optuna()
        if self._study is None:
            if self.mode is None:
                raise ValueError("OptunaSearch needs metric and mode")
            modes = self.mode if isinstance(self.mode, (list, tuple)) else [self.mode]
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self._study = optuna.create_study(
                directions=["maximize" if m == "max" else "minimize" for m in modes],
                sampler=self.sampler or optuna.samplers.TPESampler(seed=_small(self.seed)),
                pruner=optuna.pruners.NopPruner(), study_name=self._study_name,
                storage=self._storage, load_if_exists=self._storage is not None)
            for i, point in enumerate(self._points):
                if self._rewards is None:
                    self._study.enqueue_trial(dict(_pairs(point)))
                else:
                    self.add_evaluated_point(point, self._rewards[i])
        return self._study

    def add_evaluated_point(self, parameters: Config, value: Any, error: bool = False,
                            pruned: bool = False,
                            intermediate_values: list[float] | None = None) -> None:
        """A config whose result is known: value, or with several metrics a list of them."""
        if callable(self.space):
            raise TypeError("evaluated_rewards need a space that is a dict: a function says only "
                            "while it runs what it asks for")
        optuna, study = _optuna(), self._study or self._open()
        known = {k: d for k, v in _flat(self.space) if (d := _distribution(k, v)) is not None}
        given = {k: v for k, v in _pairs(parameters) if k in known}
        missing = sorted(set(known) - set(given))
        if missing:
            raise ValueError(f"points_to_evaluate: {', '.join(missing)} is missing in {parameters}")
        states = optuna.trial.TrialState
        state = states.FAIL if error else states.PRUNED if pruned else states.COMPLETE
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        study.add_trial(optuna.trial.create_trial(
            state=state, params=given, distributions=known,
            values=None if error or pruned else values,
            intermediate_values=dict(enumerate(intermediate_values or ()))))

    # --- trials -----------------------------------------------------------------------------------

    def suggest(self, trial_id: str) -> Config | str | None:
        trial = self._trials[trial_id] = self._open().ask()
        if callable(self.space):
            more = self.space(trial)
            if more is not None and not isinstance(more, dict):
                raise TypeError(f"the function that is the space must return None or a dict of "
                                f"further entries, not {more!r}")
            return _nested({**trial.params, **(more or {})})
        calls: list[Callable[..., Any]] = []
        found = {key: _asked(trial, key, domain, calls) for key, domain in _flat(self.space or {})}
        return _space.fill_in(_nested(found), calls)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        trial = self._trials.get(trial_id)
        if trial is None or not isinstance(self.metric, str):
            return
        value, step = value_of(result, self.metric), result.get("training_iteration")
        if isinstance(value, (int, float)) and step is not None:
            trial.report(value, step)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None,
                          error: bool = False) -> None:
        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        names = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        values = [None if error or not result else value_of(result, m) for m in names]
        states = _optuna().trial.TrialState
        if all(isinstance(v, (int, float)) and not math.isnan(v) for v in values):
            self._study.tell(trial, values)
        else:
            self._study.tell(trial, state=states.FAIL if error or result else states.PRUNED)


def _small(seed: int | None) -> int | None:
    """As NumPy takes it."""
    return None if seed is None else seed % 2**32


def _optuna() -> Any:
    try:
        import optuna  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError("OptunaSearch needs Optuna\nhint: pip install optuna; "
                                  "TPESearch, CMAESSearch and GPSearch need nothing",
                                  name="optuna") from e
    return optuna


# --- spaces ---------------------------------------------------------------------------------------


def _flat(o: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Entries by their path: "optimizer/lr"."""
    out: list[tuple[str, Any]] = []
    for key, value in o.items():
        if isinstance(value, Mapping) and set(value) == {"grid_search"}:
            raise ValueError(f"grid_search (of {above}{key}) under OptunaSearch: it cannot try "
                             f"every value\nhint: tune.choice([…]), or no search_alg")
        if _space.is_part(value) and value:
            out += _flat(value, f"{above}{key}/")
        else:
            out.append((f"{above}{key}", value))
    return out


def _pairs(point: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """A config in the same form."""
    return [pair for k, v in point.items()
            for pair in (_pairs(v, f"{above}{k}/") if isinstance(v, Mapping) and v
                         else [(f"{above}{k}", v)])]


def _nested(flat: Mapping[str, Any]) -> Config:
    out: Config = {}
    for path, value in flat.items():
        at = out
        *above, key = path.split("/")
        for name in above:
            at = at.setdefault(name, {})
        at[key] = value
    return out


def _is_plain(option: Any) -> bool:
    return option is None or isinstance(option, (bool, int, float, str))


def _distribution(key: str, domain: Any) -> Any:
    """Optuna's word for a domain; None: a value that is the same for all."""
    d = _optuna().distributions
    if isinstance(domain, d.BaseDistribution):
        return domain
    if not isinstance(domain, _space.Domain):
        return None
    options = domain.options()
    if options is not None:
        plain = all(map(_is_plain, options))
        return d.CategoricalDistribution(options if plain else range(len(options)))
    kind, given = next(iter(domain.spec([]).items()))
    if kind == "$range" and given["int"]:
        return d.IntDistribution(int(given["low"]), int(given["high"]), log=given["log"],
                                 step=1 if given["log"] else int(given["q"] or 1))
    if kind == "$range":
        step = None if given["log"] or not given["q"] else given["q"]
        return d.FloatDistribution(given["low"], given["high"], log=given["log"], step=step)
    if kind == "$normal":
        raise ValueError(f"{key}: Optuna has no normal distribution\nhint: tune.uniform, or "
                         f"TPESearch")
    return None


def _asked(trial: Any, key: str, domain: Any, calls: list[Any]) -> Any:
    """A value of the domain. An option that is no plain value is asked for by its number, and what
    is inside of it only if it was chosen."""
    d, distribution = _optuna().distributions, _distribution(key, domain)
    if distribution is None:
        return _space.spec_of(domain, calls)
    if isinstance(distribution, d.CategoricalDistribution):
        chosen = trial.suggest_categorical(key, distribution.choices)
        options = domain.options() if isinstance(domain, _space.Domain) else None
        if options is None or all(map(_is_plain, options)):
            return chosen
        return _inside(trial, f"{key}/{chosen}", options[chosen], calls)
    ask = trial.suggest_int if isinstance(distribution, d.IntDistribution) else trial.suggest_float
    return ask(key, distribution.low, distribution.high, step=distribution.step,
               log=distribution.log)


def _inside(trial: Any, key: str, option: Any, calls: list[Any]) -> Any:
    if isinstance(option, Mapping):
        return {k: _inside(trial, f"{key}/{k}", v, calls) for k, v in option.items()}
    return _asked(trial, key, option, calls)

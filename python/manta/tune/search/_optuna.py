# SPDX-License-Identifier: Apache-2.0
"""The real Optuna, asked for configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manta.tune import _space as _space
from manta.tune.search._searcher import Config, Searcher


class OptunaSearch(Searcher):
    """space: one of tune's, a dict of Optuna's distributions, or a function of an Optuna trial that
    calls its suggest_*() and may return further entries of the config. sampler: one of Optuna's;
    without one, its default (TPE)."""

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None,
                 points_to_evaluate: list[Config] | None = None, sampler: Any = None,
                 seed: int | None = None, evaluated_rewards: list[float] | None = None,
                 study_name: str | None = None):
        super().__init__(metric, mode)
        self.space, self.sampler, self.seed = space, sampler, seed
        self._points, self._rewards = points_to_evaluate or [], evaluated_rewards
        self._study_name = study_name
        self._study: Any = None
        self._trials: dict[str, Any] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, config: Config,
                              **spec: Any) -> bool:
        super().set_search_properties(metric, mode, config, **spec)
        if self.space is not None and config:
            return False
        self.space = self.space if self.space is not None else config
        if self.seed is None:
            self.seed = spec.get("seed")
        return True

    def _open(self) -> Any:
        try:
            import optuna  # type: ignore[import-not-found,unused-ignore]
        except ModuleNotFoundError as e:
            raise ModuleNotFoundError("OptunaSearch needs Optuna\nhint: pip install optuna; "
                                      "TPESearch, CMAESSearch and GPSearch need nothing",
                                      name="optuna") from e
        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            sampler = self.sampler or optuna.samplers.TPESampler(seed=self.seed)
            self._study = optuna.create_study(
                direction="maximize" if self.mode == "max" else "minimize", sampler=sampler,
                study_name=self._study_name)
            self._begin(optuna)
        return optuna

    def _begin(self, optuna: Any) -> None:
        for i, point in enumerate(self._points):
            flat = dict(_flat(point))
            if self._rewards is None:
                self._study.enqueue_trial(flat)
            else:
                known = {k: _distribution(optuna, k, v) for k, v in _flat(self.space)}
                self._study.add_trial(optuna.trial.create_trial(
                    params={k: v for k, v in flat.items() if k in known}, value=self._rewards[i],
                    distributions={k: d for k, d in known.items() if d is not None and k in flat}))

    def suggest(self, trial_id: str) -> Config | str | None:
        optuna = self._open()
        trial = self._trials[trial_id] = self._study.ask()
        if callable(self.space):
            more = self.space(trial)
            return _nested({**trial.params, **(more or {})})
        calls: list[Callable[..., Any]] = []
        found = {key: _asked(optuna, trial, key, domain, calls)
                 for key, domain in _flat(self.space or {})}
        return _space.fill_in(_nested(found), calls)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        trial = self._trials.get(trial_id)
        value = result.get(self.metric or "")
        step = result.get("_training_iteration", result.get("training_iteration"))
        if trial is not None and value is not None and step is not None:
            trial.report(value, step)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None,
                          error: bool = False) -> None:
        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        import optuna
        value = None if error or not result else result.get(self.metric or "")
        if value is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, value)


# --- spaces ---------------------------------------------------------------------------------------


def _flat(o: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """Entries by their path: "optimizer/lr"."""
    out: list[tuple[str, Any]] = []
    for key, value in o.items():
        if isinstance(value, Mapping) and set(value) == {"grid_search"}:
            raise ValueError(f"grid_search (of {above}{key}) under OptunaSearch: it cannot try "
                             f"every value\nhint: tune.choice([…]), or no search_alg")
        if isinstance(value, Mapping):
            out += _flat(value, f"{above}{key}/")
        else:
            out.append((f"{above}{key}", value))
    return out


def _nested(flat: Mapping[str, Any]) -> Config:
    out: Config = {}
    for path, value in flat.items():
        at = out
        *above, key = path.split("/")
        for name in above:
            at = at.setdefault(name, {})
        at[key] = value
    return out


def _distribution(optuna: Any, key: str, domain: Any) -> Any:
    """Optuna's word for a domain; None: a value that is the same for all."""
    d = optuna.distributions
    if isinstance(domain, d.BaseDistribution):
        return domain
    if not isinstance(domain, _space.Domain):
        return None
    kind, given = next(iter(domain.spec([]).items()))
    if kind == "$choice":
        return d.CategoricalDistribution(given)
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


def _asked(optuna: Any, trial: Any, key: str, domain: Any, calls: list[Any]) -> Any:
    distribution = _distribution(optuna, key, domain)
    if distribution is not None:
        return trial._suggest(key, distribution)
    return _space.spec_of(domain, calls)

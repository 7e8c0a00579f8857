# SPDX-License-Identifier: Apache-2.0
"""OptunaSearch over the real Optuna, and what an experiment has found as data frames of pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manta import tune
from manta.tune.search import ConcurrencyLimiter, OptunaSearch

optuna = pytest.importorskip("optuna", reason="optuna is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")

Config = dict[str, Any]


def bowl(config: Config) -> Config:
    return {"loss": (config["x"] - 3) ** 2, "size": -abs(config["x"])}


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "metric": "loss", "mode": "min", "seed": 1,
                                          "max_concurrent_trials": 1, "reuse_actors": True,
                                          **options})


def test_it_finds_the_minimum_and_is_told_of_all() -> None:
    search = OptunaSearch()
    found = run(bowl, {"x": tune.uniform(-50, 50), "fixed": (1, 2)}, num_samples=40,
                search_alg=search)
    assert found.best_result["loss"] < 25 and found.best_config["fixed"] == (1, 2)
    told = search._study.get_trials()
    assert len(told) == 40 and all(t.state.name == "COMPLETE" for t in told)
    assert search._study.best_value == found.best_result["loss"]
    assert told[0].intermediate_values == {1: told[0].value}


def test_it_is_told_of_metrics_inside_of_others() -> None:
    search = OptunaSearch()
    found = run(lambda c: {"eval": {"loss": c["x"]}}, {"x": tune.uniform(0, 1)}, num_samples=3,
                search_alg=search, metric="eval/loss")
    assert search._study.best_value == found.best_result["eval"]["loss"]


def test_all_domains_have_their_distributions() -> None:
    space = {"u": tune.uniform(0, 1), "q": tune.quniform(0, 1, 0.25), "l": tune.loguniform(1e-4, 1),
             "i": tune.randint(2, 5), "qi": tune.qrandint(0, 8, 4), "li": tune.lograndint(1, 100),
             "c": tune.choice(["a", "b", None]), "list": tune.choice([[1, 2], [3]]),
             "deep": {"x": tune.uniform(0, 1), "f": tune.sample_from(lambda spec: spec.config.i)},
             "opt": tune.choice([{"name": "sgd", "momentum": tune.uniform(0, 1)},
                                 {"name": "adam"}])}
    search = OptunaSearch(seed=3)
    found = run(lambda c: {"loss": c["u"]}, space, num_samples=12, search_alg=search)
    for c in (t.config for t in found.trials):
        assert c["q"] % 0.25 == 0 and 1e-4 <= c["l"] <= 1 and c["i"] in (2, 3, 4)
        assert c["qi"] in (0, 4, 8) and 1 <= c["li"] < 100 and c["c"] in ("a", "b", None)
        assert c["list"] in ([1, 2], [3]) and 0 <= c["deep"]["x"] <= 1 and c["deep"]["f"] == c["i"]
        assert c["opt"] == {"name": "adam"} or 0 <= c["opt"]["momentum"] <= 1
    names = set(search._study.get_trials()[0].params)
    assert {"u", "deep/x", "opt"} <= names and "deep/f" not in names


@pytest.mark.parametrize("space, text", [
    ({"x": tune.grid_search([1, 2])}, "grid_search"), ({"x": tune.randn()}, "normal")])
def test_what_optuna_cannot_search_is_said(space: Config, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(bowl, space, search_alg=OptunaSearch())


def test_a_space_may_be_optunas_own() -> None:
    space = {"x": optuna.distributions.FloatDistribution(0, 1),
             "n": {"k": optuna.distributions.IntDistribution(1, 3)}}
    found = run(bowl, {"fixed": 7}, num_samples=4, search_alg=OptunaSearch(space))
    assert all(0 <= t.config["x"] <= 1 and t.config["n"]["k"] in (1, 2, 3)
               and t.config["fixed"] == 7 for t in found.trials)
    with pytest.raises(ValueError, match="two spaces"):
        run(bowl, {"y": tune.uniform(0, 1)}, search_alg=OptunaSearch(space))


def defined(trial: Any) -> Config:
    kind = trial.suggest_categorical("kind", ["a", "b"])
    trial.suggest_float("x", 0, 1) if kind == "a" else trial.suggest_float("x", 5, 6)
    return {"steps": 10}


def test_a_space_may_be_defined_by_run() -> None:
    search = ConcurrencyLimiter(OptunaSearch(defined, metric="loss", mode="min"), 2)
    found = tune.run(bowl, num_samples=8, search_alg=search, verbose=0, seed=1)
    for c in (t.config for t in found.trials):
        assert c["steps"] == 10 and (c["x"] <= 1 if c["kind"] == "a" else c["x"] >= 5)
    assert found.default_metric == "loss"


def test_there_may_be_several_objectives() -> None:
    search = OptunaSearch(metric=["loss", "size"], mode=["min", "max"],
                          sampler=optuna.samplers.NSGAIISampler(seed=1, population_size=4))
    found = tune.run(bowl, {"x": tune.uniform(-5, 5)}, num_samples=12, search_alg=search,
                     verbose=0, reuse_actors=True)
    assert len(search._study.best_trials) >= 1 and len(found) == 12
    assert found.get_best_config("size", "max") is not None
    with pytest.raises(ValueError, match="as many modes"):
        OptunaSearch(metric=["a", "b"], mode="min")


def test_known_points_come_first_or_are_not_tried() -> None:
    space = {"x": tune.uniform(-5, 5)}
    first = OptunaSearch(points_to_evaluate=[{"x": 3.0}, {"x": -1.0}])
    found = run(bowl, space, num_samples=3, search_alg=first)
    assert [t.config["x"] for t in found.trials[:2]] == [3.0, -1.0]
    known = OptunaSearch(points_to_evaluate=[{"x": 3.0}, {"x": -1.0}], evaluated_rewards=[0, 16])
    found = run(bowl, space, num_samples=3, search_alg=known)
    assert len(found) == 3 and len(known._study.get_trials()) == 5
    assert known._study.best_params == {"x": 3.0}


def test_failures_are_told_too() -> None:
    def fails(config: Config) -> Config:
        if config["x"] > 0:
            raise ValueError("positive")
        return {"loss": config["x"]}

    search = OptunaSearch(seed=1)
    found = run(fails, {"x": tune.uniform(-5, 5)}, num_samples=8, search_alg=search,
                raise_on_failed_trial=False)
    failed = [t.state.name for t in search._study.get_trials()].count("FAIL")
    assert failed == len(found.failed()) > 0


def test_what_it_knows_can_be_kept(tmp_path: Path) -> None:
    search = OptunaSearch({"x": tune.uniform(-5, 5)}, metric="loss", mode="min", seed=1)
    for i in range(5):
        config = search.suggest(str(i))
        assert isinstance(config, dict)
        search.on_trial_complete(str(i), {"loss": config["x"] ** 2})
    search.save(str(tmp_path / "search"))
    other = OptunaSearch()
    other.restore(str(tmp_path / "search"))
    assert len(other._study.get_trials()) == 5
    assert other.suggest("5") == search.suggest("5")


def test_a_resumed_experiment_tells_it_again(tmp_path: Path) -> None:
    space, options = {"x": tune.uniform(-5, 5)}, {"local_dir": tmp_path, "name": "kept"}
    run(bowl, space, num_samples=6, search_alg=OptunaSearch(), **options)
    again = OptunaSearch()
    found = run(bowl, space, num_samples=6, search_alg=again, resume=True, **options)
    assert len(found) == 6 and again._study.best_value == found.best_result["loss"]


def test_results_are_data_frames() -> None:
    def steps(config: Config) -> None:
        for i in range(3):
            tune.report(loss=abs(config["x"] - i), deep={"i": i})

    found = run(steps, {"x": tune.grid_search([0, 1])}, reuse_actors=False)
    frame = found.dataframe()
    assert list(frame["config/x"]) == [0, 1] and list(frame["loss"]) == [2, 1]
    assert list(found.dataframe("loss", "min")["loss"]) == [0, 0]
    assert [len(f) for f in found.trial_dataframes.values()] == [3, 3]
    assert found.results_df.loc["00001"]["loss"] == 1
    assert list(found.best_dataframe["deep/i"]) == [0, 1, 2]

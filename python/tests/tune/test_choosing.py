# SPDX-License-Identifier: Apache-2.0
"""Spaces, searchers and schedulers of tune.run."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from manta import tune
from manta.tune import schedulers, search


def bowl(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": (config["x"] - 3) ** 2}


def run(trainable: Any, config: Any = None, **options: Any) -> tune.ExperimentAnalysis:
    return tune.run(trainable, config, **{"verbose": 0, "metric": "loss", "mode": "min", "seed": 1,
                                          **options})


# --- spaces ---------------------------------------------------------------------------------------


def test_domains_draw_what_they_say() -> None:
    assert all(0 <= x <= 1 for x in tune.uniform().sample(20))
    assert all(x % 2 == 0 and 2 <= x <= 8 for x in tune.quniform(2, 8, 2).sample(20))
    assert all(1e-4 <= x <= 1 for x in tune.loguniform(1e-4, 1).sample(20))
    assert set(tune.randint(0, 3).sample(60)) == {0, 1, 2}
    assert set(tune.randint(3).sample(60)) == {0, 1, 2}
    assert set(tune.qrandint(0, 4, 2).sample(60)) == {0, 2, 4}
    assert all(1 <= x < 100 for x in tune.lograndint(1, 100).sample(20))
    assert isinstance(tune.randn(3, 1).sample(), float)
    assert tune.choice(["a", (1, 2)]).sample() in ("a", (1, 2))


def test_domains_refuse_what_makes_no_sense() -> None:
    with pytest.raises(TypeError, match="choice"):
        tune.randint(1, 2, 3)
    with pytest.raises(ValueError, match="nothing to choose"):
        tune.choice([])
    with pytest.raises(ValueError, match="nothing to try"):
        tune.grid_search([])
    with pytest.raises(ValueError, match="lr"):
        run(bowl, {"lr": tune.uniform(5, 1)})
    with pytest.raises(TypeError, match="nothing is chosen inside of a tuple"):
        run(bowl, {"sizes": (1, tune.uniform(0, 1))})
    with pytest.raises(TypeError, match="names as its keys, not 1"):
        run(bowl, {"by_layer": {1: tune.uniform(0, 1)}})
    assert run(bowl, {"x": 1, 1: 2, "t": (1, 2)}).best_config == {"x": 1, 1: 2, "t": (1, 2)}


def test_functions_see_what_was_drawn_before() -> None:
    space = {"b": tune.sample_from(lambda spec: spec.config.a.x * 2),
             "a": {"x": tune.choice([2, 3])}, "c": tune.sample_from(lambda: 7),
             "n": tune.grid_search([0, 1])}
    found = run(lambda config: {"loss": 0}, space, num_samples=2)
    assert len(found) == 4
    assert all(t.config["b"] == 2 * t.config["a"]["x"] and t.config["c"] == 7
               for t in found.trials)
    assert [t.config["n"] for t in found.trials] == [0, 1, 0, 1]


def test_options_may_have_parameters_of_their_own() -> None:
    space = {"opt": tune.choice([{"name": "sgd", "momentum": tune.uniform(0, 1)},
                                 {"name": "adam"}])}
    found = run(lambda config: {"loss": 0}, space, num_samples=12)
    kinds = [t.config["opt"] for t in found.trials]
    assert {"name": "adam"} in kinds
    assert any(k["name"] == "sgd" and 0 <= k["momentum"] <= 1 for k in kinds)


class Settings(dict[str, Any]):
    """As several libraries have them."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@pytest.mark.parametrize("alg", [None, "limited"])
def test_dicts_of_other_types_stay_what_they_are(alg: str | None) -> None:
    limited = search.ConcurrencyLimiter(search.TPESearch(), 1) if alg else None
    space = Settings(s=Settings(n=2), d=Settings(x=tune.choice([3])), l=[Settings(n=1)])
    found = run(lambda c: {"loss": c["s"].n + c["d"]["x"] + c["l"][0].n}, space, search_alg=limited)
    assert found.best_result["loss"] == 6 and type(found.best_config["d"]) is dict


# --- searchers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tpe", "cmaes", "gp"])
def test_searchers_find_the_minimum(name: str) -> None:
    found = run(bowl, {"x": tune.uniform(-50, 50)}, num_samples=40, search_alg=name,
                reuse_actors=True, max_concurrent_trials=1)
    assert found.best_result["loss"] < 25


def test_a_limiter_asks_for_few_at_once() -> None:
    limited = search.ConcurrencyLimiter(search.TPESearch(), max_concurrent=2)
    found = run(bowl, {"x": tune.uniform(-5, 5)}, num_samples=10, search_alg=limited)
    assert len(found) == 10 and not limited._live


def test_a_repeater_tells_the_mean() -> None:
    told: list[float] = []

    class Noted(search.TPESearch):
        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            told.append(result["loss"])
            super().on_trial_complete(trial_id, result, error)

    found = run(lambda c: {"loss": c["__trial_index__"]}, {"x": tune.uniform(-5, 5)},
                num_samples=6, search_alg=search.Repeater(Noted(), repeat=3))
    assert len(found) == 6 and told == [1.0, 1.0]
    assert len({t.config["x"] for t in found.trials}) == 2


def inside(config: dict[str, Any]) -> dict[str, Any]:
    return {"eval": {"loss": (config["x"] - 3) ** 2}}


class Told:
    """In the place of what searches in C."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def propose(self, number: int) -> dict[str, Any]:
        return {"x": float(number)}

    def observe(self, number: int, value: float) -> None:
        self.values.append(value)


def test_searchers_are_told_of_metrics_inside_of_others() -> None:
    for around, values in ((search.ConcurrencyLimiter, [9, 4, 1, 0]), (search.Repeater, [9, 4])):
        native = search.TPESearch()
        native._search = told = Told()  # type: ignore[assignment]
        run(inside, {"x": tune.uniform(-5, 5)}, num_samples=4, metric="eval/loss",
            max_concurrent_trials=1,
            search_alg=around(native, 2 if around is search.Repeater else 1))
        assert told.values == values


class Own(search.Searcher):
    def __init__(self) -> None:
        super().__init__()
        self.reports = self.ended = 0

    def suggest(self, trial_id: str) -> Any:
        return search.Searcher.FINISHED if int(trial_id) == 3 else {"x": int(trial_id)}

    def on_trial_result(self, trial_id: str, result: Any) -> None:
        self.reports += 1

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.ended += 1


def test_a_searcher_of_the_users_chooses() -> None:
    own = Own()
    found = run(bowl, {"fixed": 5}, num_samples=100, search_alg=own)
    assert [t.config for t in found.trials] == [{"x": i, "fixed": 5} for i in range(3)]
    assert (own.reports, own.ended) == (3, 3)


def test_first_points_come_first() -> None:
    first = search.BasicVariantGenerator(points_to_evaluate=[{"x": 3}])
    found = run(bowl, {"x": tune.uniform(0, 1)}, num_samples=3, search_alg=first)
    assert found.best_config == {"x": 3} and found.trials[0].config == {"x": 3}
    assert len(found) == 3


def test_points_may_leave_something_open() -> None:
    first = search.BasicVariantGenerator(points_to_evaluate=[{"x": 3, "n": {"a": 7}}, {"x": 4}])
    space = {"x": tune.uniform(0, 1), "n": {"a": tune.uniform(0, 1), "b": tune.uniform(5, 6)},
             "g": tune.grid_search([1, 2]), "s": tune.sample_from(lambda spec: spec.config.x + 1)}
    found = [t.config for t in run(bowl, space, num_samples=3, search_alg=first).trials]
    assert [c["x"] for c in found[:2]] == [3, 4] and [c["s"] for c in found[:2]] == [4, 5]
    assert found[0]["n"]["a"] == 7 and all(5 <= c["n"]["b"] <= 6 for c in found)
    assert [c["g"] for c in found[2:]] == [1, 2]  # the third sample, of the whole grid


def test_a_limiter_goes_through_grids() -> None:
    limited = search.ConcurrencyLimiter(search.BasicVariantGenerator(), max_concurrent=1)
    found = run(bowl, {"x": tune.grid_search([1, 2, 3])}, num_samples=2, search_alg=limited)
    assert [t.config["x"] for t in found.trials] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("domain", [tune.uniform(0, 1), tune.grid_search([1, 2])])
def test_a_space_that_no_searcher_takes_is_an_error(domain: Any) -> None:
    for alg in (Own(), search.ConcurrencyLimiter(Own(), 2)):
        with pytest.raises(ValueError, match="n/y of the config would not be chosen: Own takes no"):
            run(bowl, {"n": {"y": domain}}, search_alg=alg)


def test_a_searcher_that_fails_ends_the_experiment_with_it() -> None:
    class Wrong(search.Searcher):
        def suggest(self, trial_id: str) -> Any:
            raise KeyError("no idea")

    with pytest.raises(KeyError, match="no idea"):
        run(bowl, search_alg=Wrong())


# --- schedulers -----------------------------------------------------------------------------------


def curve(config: dict[str, Any]) -> None:
    for i in range(1, 10):
        tune.report(loss=config["x"] + 1 / i)


@pytest.mark.parametrize("scheduler", [
    schedulers.ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
    schedulers.HyperBandScheduler(max_t=9),
    schedulers.MedianStoppingRule(grace_period=1, min_samples_required=2),
])
def test_schedulers_stop_the_worst(scheduler: Any) -> None:
    found = run(curve, {"x": tune.grid_search([0, 1, 2, 3, 4, 5])}, scheduler=scheduler,
                max_concurrent_trials=2)
    done = [t.last_result["training_iteration"] for t in found.trials]
    assert found.best_config == {"x": 0} and done[0] == 9 and sum(done) < 6 * 9


class Until(schedulers.TrialScheduler):
    def __init__(self) -> None:
        self.paused: set[str] = set()

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> str:
        if result["training_iteration"] == 2 and trial_id not in self.paused:
            self.paused.add(trial_id)
            return self.PAUSE
        return self.STOP if result["training_iteration"] >= 4 else self.CONTINUE


def saving(config: dict[str, Any]) -> None:
    for i in range((tune.load_checkpoint() or {"i": 0})["i"] + 1, 9):
        tune.report(loss=config["x"], i=i)
        tune.save_checkpoint(i=i)


def test_a_scheduler_of_the_users_decides() -> None:
    own = Until()
    found = run(saving, {"x": 1}, num_samples=3, scheduler=own)
    # Rows that a trial still makes before the pause reaches it count.
    assert all(4 <= t.last_result["i"] <= 8 for t in found.trials) and len(own.paused) == 3


class AsInRay(schedulers.FIFOScheduler):
    """With the arguments that Ray's schedulers have."""

    def __init__(self) -> None:
        self.added: list[tuple[str, int]] = []
        self.paused: set[str] = set()
        self.seen: list[int] = []

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self.added.append((trial.trial_id, trial.config["x"]))
        super().on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        assert trial.trial_id == result["trial_id"] and trial.status == "RUNNING"
        self.seen.append(len(tune_controller.get_live_trials()))
        if result["training_iteration"] == 2 and trial.trial_id not in self.paused:
            self.paused.add(trial.trial_id)
            return self.PAUSE
        if result["training_iteration"] >= 4:
            return self.STOP
        return super().on_trial_result(tune_controller, trial, result)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        chosen = super().choose_trial_to_run(tune_controller)
        return next((t for t in tune_controller.get_trials() if t.trial_id == chosen), None)


def test_it_may_have_the_arguments_of_rays() -> None:
    own = AsInRay()
    found = run(saving, {"x": tune.grid_search([5, 6, 7])}, scheduler=own)
    assert own.added == [("00000", 5), ("00001", 6), ("00002", 7)] and len(own.paused) == 3
    assert all(4 <= t.last_result["i"] <= 8 for t in found.trials) and set(own.seen) <= {1, 2, 3}


def test_what_decides_in_libmanta_has_no_methods_of_the_users() -> None:
    class Mine(schedulers.ASHAScheduler):
        def on_trial_result(self, *args: Any) -> str:
            return self.STOP

    with pytest.raises(TypeError, match="Mine has its own on_trial_result"):
        run(saving, {"x": 1}, scheduler=Mine())


def slow(config: dict[str, Any]) -> None:
    """So slow that all of a population run at once."""
    for i in range((tune.load_checkpoint() or {"i": 0})["i"] + 1, 30):
        time.sleep(0.01)
        tune.report(loss=config["x"], i=i)
        tune.save_checkpoint(i=i)


def test_pbt_changes_only_what_it_may() -> None:
    seen: list[dict[str, Any]] = []

    def noted(config: dict[str, Any]) -> dict[str, Any]:
        seen.append(config)
        return {**config, "custom": True}

    pbt = schedulers.PopulationBasedTraining(
        perturbation_interval=2, quantile_fraction=0.5, resample_probability=0,
        hyperparam_mutations={"lr": tune.uniform(0, 1), "size": [8, 16, 32],
                              "deep": {"f": lambda: 5.0}},
        custom_explore_fn=noted)
    found = run(slow, {"x": tune.grid_search([0, 1, 2, 3]), "lr": 1.0, "size": 16,
                         "deep": {"f": 1.0}, "keep": tune.choice([2, 3, 5, 7])},
                scheduler=pbt, resources_per_trial={"cpu": 0.25})
    copies = [t.config for t in found.trials if "custom" in t.config]
    assert seen and copies
    for c in seen:
        assert c["size"] in (8, 16, 32) and c["keep"] in (2, 3, 5, 7)
        assert c["lr"] != 1.0 or c["deep"]["f"] != 1.0  # of which each was moved
        assert c["x"] in (0, 1, 2, 3) and c["lr"] > 0


def counts(config: dict[str, Any]) -> None:
    for i in range((tune.load_checkpoint() or {"i": 0})["i"], 6):
        tune.report(loss=config["x"])
        tune.save_checkpoint(i=i + 1)


def test_a_population_takes_turns_where_there_is_no_room() -> None:
    pbt = schedulers.PopulationBasedTraining(perturbation_interval=2, quantile_fraction=0.5,
                                             hyperparam_mutations={"y": [1, 2]})
    found = run(counts, {"x": tune.grid_search([1, 2, 3])}, scheduler=pbt, max_concurrent_trials=1)
    assert [t.config["x"] for t in found.trials] == [1, 1, 1]  # one by one nobody had copied
    assert [t.iteration for t in found.trials] == [6, 6, 6]


def test_mutations_are_drawn_as_said() -> None:
    from manta.tune._explore import Mutations
    m = Mutations({"n": [1, 2, 3], "u": tune.uniform(5, 6), "f": lambda: 9}, 1.0, (1.2, 0.8), None)
    m.seed(3)
    out = m(0, {"n": 2, "u": 0.5, "f": 1, "other": 4})
    assert out["n"] in (1, 2, 3) and 5 <= out["u"] <= 6 and out["f"] == 9 and out["other"] == 4
    m = Mutations({"n": [1, 2, 3], "u": tune.uniform(5, 6), "i": lambda: 9}, 0.0, (1.2, 0.8), None)
    m.seed(random.getrandbits(20))
    out = m(0, {"n": 2, "u": 5.0, "i": 10})
    assert out["n"] in (1, 3) and out["u"] in (6.0, 4.0) and out["i"] in (12, 8)
    assert m.complete({"n": 7})["n"] == 7 and set(m.complete({})) == {"n", "u", "i"}
    with pytest.raises(TypeError, match="hyperparam_mutations"):
        schedulers.PopulationBasedTraining(hyperparam_mutations={"lr": 3})


def test_pb2_changes_what_has_bounds_and_nothing_else() -> None:
    pb2 = schedulers.PB2(perturbation_interval=2, quantile_fraction=0.5,
                         hyperparam_bounds={"x": [0.5, 2.0], "deep": {"z": [0, 1]}})
    found = run(slow, {"k": 1, "y": tune.uniform(0, 1), "deep": {"o": "sgd"}}, num_samples=4,
                scheduler=pb2, resources_per_trial={"cpu": 0.25})
    assert all(0.5 <= t.config["x"] <= 2 and t.config["k"] == 1 for t in found.trials)
    assert all(t.config["deep"]["o"] == "sgd" and 0 <= t.config["deep"]["z"] <= 1
               for t in found.trials)
    drawn = run(lambda config: tune.report(loss=0), {"y": tune.uniform(0, 1)}, num_samples=4)
    assert {t.config["y"] for t in found.trials} <= {t.config["y"] for t in drawn.trials}
    with pytest.raises(ValueError, match="custom_explore_fn"):
        schedulers.PB2(hyperparam_bounds={"x": [0, 1]}, custom_explore_fn=dict)


def test_resources_may_change_under_any_scheduler() -> None:
    calls: list[Any] = []

    def grow(controller: Any, trial: Any, result: dict[str, Any], scheduler: Any) -> Any:
        calls.append((len(controller.get_live_trials()), trial.config["x"], type(scheduler)))
        return {"cpu": 2} if result["training_iteration"] >= 3 else None

    rcs = schedulers.ResourceChangingScheduler(schedulers.ASHAScheduler(max_t=6), grow)
    found = run(saving, {"x": 1}, scheduler=rcs, resources_per_trial={"cpu": 1})
    assert found.trials[0].last_result["i"] == 6
    assert calls[0] == (1, 1, schedulers.ResourceChangingScheduler)

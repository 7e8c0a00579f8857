# SPDX-License-Identifier: Apache-2.0
"""Which trials go on: schedulers of libmanta, and what a class of the user's needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from manta._front import refuse as _refuse
from manta.tune import _space as space
from manta.tune._explore import Mutations, check_mutations

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler", "DistributeResources", "FIFOScheduler",
           "HyperBandForBOHB", "HyperBandScheduler", "MedianStoppingRule", "PB2",
           "PopulationBasedTraining", "ResourceChangingScheduler", "TrialScheduler",
           "create_scheduler"]


class TrialScheduler:
    """A scheduler. One of your own overrides on_trial_result; the others are libmanta's. Its
    methods may also take what those of Ray's do: the experiment, a trial, and its result."""

    CONTINUE, PAUSE, STOP = "CONTINUE", "PAUSE", "STOP"

    native: str | None = None  # its name in libmanta
    metric: str | None = None
    mode: str | None = None
    time_attr: str | None = None

    def options(self) -> dict[str, Any]:
        """For libmanta."""
        return {}

    def complete(self, config: dict[str, Any]) -> dict[str, Any]:
        """The space, with what the scheduler adds to it."""
        return config

    def on_trial_add(self, trial_id: Any, config: Any) -> None:
        """A trial begins."""

    def on_trial_result(self, *args: Any, **kwargs: Any) -> str:
        """(trial_id, result): CONTINUE, PAUSE or STOP. A paused trial goes on when
        choose_trial_to_run says so."""
        return self.CONTINUE

    def on_trial_complete(self, *args: Any, **kwargs: Any) -> None:
        """(trial_id, result): it will not report again."""

    def choose_trial_to_run(self, paused: Any) -> Any:
        """Which of the paused ones goes on; None: none now."""
        waiting = getattr(paused, "paused", paused)
        return waiting[0] if waiting else None


def _common(self: TrialScheduler, metric: str | None, mode: str | None,
            time_attr: str | None) -> None:
    if mode not in (None, "min", "max"):
        raise ValueError(f'mode must be "min" or "max", not {mode!r}')
    self.metric, self.mode, self.time_attr = metric, mode, time_attr


class FIFOScheduler(TrialScheduler):
    """Every trial runs to its end, in order."""

    native = "fifo"


class AsyncHyperBandScheduler(TrialScheduler):
    """ASHA: at grace_period, and at every reduction_factor times that, only the best of each
    reduction_factor trials go on."""

    native = "asha"

    def __init__(self, time_attr: str | None = None, metric: str | None = None,
                 mode: str | None = None, max_t: float = 100, grace_period: float = 1,
                 reduction_factor: float = 4, brackets: int = 1,
                 stop_last_trials: bool = True):
        _common(self, metric, mode, time_attr)
        self._options = {"max_time": max_t, "grace": grace_period, "factor": reduction_factor,
                         "brackets": brackets}

    def options(self) -> dict[str, Any]:
        return dict(self._options)


ASHAScheduler = AsyncHyperBandScheduler


class HyperBandScheduler(TrialScheduler):
    """Brackets of trials that wait for each other; of each the best go on."""

    native = "hyperband"

    def __init__(self, time_attr: str | None = None, metric: str | None = None,
                 mode: str | None = None, max_t: float = 81, reduction_factor: float = 3,
                 stop_last_trials: bool = True):
        _common(self, metric, mode, time_attr)
        self._options = {"max_time": max_t, "factor": reduction_factor}

    def options(self) -> dict[str, Any]:
        return dict(self._options)


HyperBandForBOHB = HyperBandScheduler


class MedianStoppingRule(TrialScheduler):
    """Stops a trial whose best is worse than the median of the others' averages so far."""

    native = "median"

    def __init__(self, time_attr: str | None = None, metric: str | None = None,
                 mode: str | None = None, grace_period: float = 60,
                 min_samples_required: int = 3, min_time_slice: float = 0,
                 hard_stop: bool = True):
        _common(self, metric, mode, time_attr)
        self._options = {"grace": grace_period, "least_trials": min_samples_required}

    def options(self) -> dict[str, Any]:
        return dict(self._options)


class PopulationBasedTraining(TrialScheduler):
    """Every perturbation_interval, trials among the worst go on from the checkpoint of one among
    the best, with its config changed a little: trials must save checkpoints."""

    native = "pbt"

    def __init__(self, time_attr: str | None = None, metric: str | None = None,
                 mode: str | None = None, perturbation_interval: float = 60,
                 burn_in_period: float = 0,
                 hyperparam_mutations: dict[str, Any] | None = None,
                 quantile_fraction: float = 0.25, resample_probability: float = 0.25,
                 perturbation_factors: tuple[float, float] = (1.2, 0.8),
                 custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
                 log_config: bool = True, require_attrs: bool = True, synch: bool = False):
        """log_config: taken; every config is in the experiment's log."""
        _common(self, metric, mode, time_attr)
        if synch:
            _ignored(type(self).__name__, "synch", "trials do not wait for each other: one goes on "
                                                   "from the best there are when it reports")
        if not hyperparam_mutations and custom_explore_fn is None:
            raise ValueError("PopulationBasedTraining needs hyperparam_mutations: what of the "
                             "config it may change, e.g. {'lr': tune.loguniform(1e-4, 1e-1)}")
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(f"quantile_fraction must be in [0, 0.5], not {quantile_fraction}")
        check_mutations(hyperparam_mutations or {})
        self.mutations = Mutations(hyperparam_mutations or {}, resample_probability,
                                   perturbation_factors, custom_explore_fn)
        self._options: dict[str, Any] = {
            "interval": perturbation_interval, "grace": burn_in_period,
            "quantile": quantile_fraction}

    def options(self) -> dict[str, Any]:
        return dict(self._options)

    def complete(self, config: dict[str, Any]) -> dict[str, Any]:
        return self.mutations.complete(config)


class PB2(PopulationBasedTraining):
    """The same, with new values chosen by a model of what helped before: hyperparam_bounds has low
    and high of each parameter. All others are copied as they are."""

    native = "pb2"

    def __init__(self, time_attr: str | None = None, metric: str | None = None,
                 mode: str | None = None, perturbation_interval: float = 60,
                 hyperparam_bounds: dict[str, Any] | None = None, quantile_fraction: float = 0.25,
                 **others: Any):
        if not hyperparam_bounds:
            raise ValueError("PB2 needs hyperparam_bounds, e.g. {'lr': [1e-4, 1e-1]}")
        if others.pop("custom_explore_fn", None) is not None:
            raise ValueError("PB2 takes no custom_explore_fn: its model chooses the new values; "
                             "PopulationBasedTraining takes one")
        bounds = _bounds(hyperparam_bounds)
        super().__init__(time_attr, metric, mode, perturbation_interval,
                         hyperparam_mutations=bounds, quantile_fraction=quantile_fraction,
                         **others)
        self._options["only"] = _paths(bounds)

    def complete(self, config: dict[str, Any]) -> dict[str, Any]:
        """The model's parameters are numbers within bounds, however the config draws them."""
        return _replaced(config, self.mutations.given)


def _bounds(given: dict[str, Any]) -> dict[str, Any]:
    return {k: _bounds(v) if isinstance(v, dict)
            else space.uniform(*v) if isinstance(v, (list, tuple)) else v
            for k, v in given.items()}


def _paths(given: dict[str, Any], above: str = "") -> list[str]:
    return [path for k, v in given.items()
            for path in (_paths(v, f"{above}{k}/") if isinstance(v, dict) else [f"{above}{k}"])]


def _replaced(config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    out = dict(config)
    for k, v in given.items():
        below = out[k] if isinstance(out.get(k), dict) else {}
        out[k] = _replaced(below, v) if isinstance(v, dict) else v
    return out


class ResourceChangingScheduler(TrialScheduler):
    """Another scheduler, and a function that says what a trial gets from here on:
    f(tune_controller, trial, result, scheduler) -> {"cpu": 2}, or None: as it is. The trial saves,
    ends, and goes on from its checkpoint with other resources."""

    def __init__(self, base_scheduler: TrialScheduler | None = None,
                 resources_allocation_function: Callable[..., Any] | None = None):
        self.base = base_scheduler or FIFOScheduler()
        self.allocate = resources_allocation_function or DistributeResources()
        self.native = self.base.native
        self._base_trial_resources: Any = None  # what a trial begins with; set by tune.run
        _common(self, self.base.metric, self.base.mode, self.base.time_attr)

    def options(self) -> dict[str, Any]:
        return self.base.options()

    def complete(self, config: dict[str, Any]) -> dict[str, Any]:
        return self.base.complete(config)


class DistributeResources:
    """Gives every trial that is live the same part of all CPUs and GPUs."""

    def __init__(self, add_bundles: bool = False, increase_by: dict[str, float] | None = None,
                 increase_by_times: int = -1, reserve_resources: dict[str, float] | None = None):
        """reserve_resources: {"CPU": 1}: what no trial gets."""
        self.reserved = reserve_resources or {}
        if add_bundles or increase_by or increase_by_times != -1:
            _ignored("DistributeResources", "add_bundles, increase_by and increase_by_times",
                     "every live trial gets the same part")

    def __call__(self, tune_controller: Any, trial: Any, result: dict[str, Any],
                 scheduler: Any) -> dict[str, float] | None:
        from manta._runtime.inventory import cluster_resources
        live = max(1, len(tune_controller.get_live_trials()))
        there = {k: max(0.0, v - self.reserved.get(k, 0)) for k, v in cluster_resources().items()}
        part = {"cpu": float(max(1, int(there["CPU"]) // live))}
        if there.get("GPU"):
            part["gpu"] = float(int(there["GPU"]) // live)
        return part


def _ignored(whom: str, what: str, instead: str) -> None:
    import warnings
    warnings.warn(f"{whom} ignores {what}: {instead}", stacklevel=4)


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """By name: "asha", "hyperband", "median_stopping_rule", "pbt", "pb2", "fifo"."""
    known: dict[str, Callable[..., TrialScheduler]] = {
        "fifo": FIFOScheduler, "asha": ASHAScheduler, "async_hyperband": ASHAScheduler,
        "hyperband": HyperBandScheduler, "median_stopping_rule": MedianStoppingRule,
        "medianstopping": MedianStoppingRule, "pbt": PopulationBasedTraining, "pb2": PB2}
    if scheduler not in known:
        raise ValueError(f"there is no scheduler {scheduler!r}; there are: {', '.join(known)}")
    return known[scheduler](**kwargs)


def __getattr__(name: str) -> NoReturn:
    _refuse(__name__, name, __all__)

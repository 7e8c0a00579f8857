# SPDX-License-Identifier: Apache-2.0
"""Who chooses configs: the class that a user derives from, and searchers around a searcher."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from manta.tune._analysis import value_of

Config = dict[str, Any]


class Searcher:
    """suggest gives configs, and is told how their trials did.

        class Mine(Searcher):
            def suggest(self, trial_id): return {"lr": …}
            def on_trial_complete(self, trial_id, result=None, error=False): …

    The calls come one at a time, in the driver. An experiment that is resumed makes them again, in
    the same order; what suggest returns then is compared with what the trial had."""

    FINISHED = "FINISHED"

    def __init__(self, metric: Any = None, mode: Any = None, **others: Any):
        """A searcher that can have several objectives has lists of metrics and modes."""
        modes = mode if isinstance(mode, (list, tuple)) else [mode]
        if not all(m in (None, "min", "max") for m in modes):
            raise ValueError(f'mode must be "min" or "max", not {mode!r}')
        self._metric, self._mode = metric, mode

    @property
    def metric(self) -> Any:
        return self._metric

    @property
    def mode(self) -> Any:
        return self._mode

    def set_search_properties(self, metric: Any, mode: Any, config: Config,
                              **spec: Any) -> bool:
        """What tune.run was given, before the first suggest. False: a searcher that has its own
        space can take no other."""
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        """A config; None: not now; Searcher.FINISHED: there are no more."""
        raise NotImplementedError(f"{type(self).__name__} has no suggest(self, trial_id)")

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None,
                          error: bool = False) -> None:
        """A trial has ended; without a result that counts if error is True."""

    def save(self, checkpoint_path: str) -> None:
        """Writes what it knows to a file."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        """Takes what save() wrote. It is unpickled: only from somebody whom you trust."""
        self.set_state(pickle.loads(Path(checkpoint_path).read_bytes()))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """The same as a file in a directory."""
        self.save(str(Path(checkpoint_dir, f"searcher-state-{session_str}.pkl")))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Takes the newest that save_to_dir() wrote there; as restore()."""
        there = sorted(Path(checkpoint_dir).glob("searcher-state-*.pkl"),
                       key=lambda p: p.stat().st_mtime_ns)
        if not there:
            raise RuntimeError(f"there is no state of a searcher in {checkpoint_dir}")
        self.restore(str(there[-1]))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Whether it limits trials itself; else ConcurrencyLimiter does."""
        return False

    def get_state(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def set_state(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class ConcurrencyLimiter(Searcher):
    """Asks a searcher for a config only while fewer than max_concurrent of them are being tried.
    batch: then for as many at once."""

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False):
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, not {max_concurrent!r}")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.max_concurrent, self.batch = searcher, max_concurrent, batch
        self._live: set[str] = set()
        self._full = False

    def set_search_properties(self, metric: Any, mode: Any, config: Config,
                              **spec: Any) -> bool:
        super().set_search_properties(metric, mode, config, **spec)
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Config | str | None:
        if len(self._live) >= self.max_concurrent:
            self._full = True
        if self._full and (self.batch or len(self._live) >= self.max_concurrent):
            return None
        found = self.searcher.suggest(trial_id)
        if found is not None and found != Searcher.FINISHED:
            self._live.add(trial_id)
        return found

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None,
                          error: bool = False) -> None:
        self._live.discard(trial_id)
        if not self._live or not self.batch:
            self._full = False
        self.searcher.on_trial_complete(trial_id, result, error)


class Repeater(Searcher):
    """Tries every config `repeat` times and tells the searcher the mean. set_index: the config has
    the number of the repetition as __trial_index__."""

    INDEX = "__trial_index__"

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True):
        if not isinstance(repeat, int) or repeat < 1:
            raise ValueError(f"repeat must be at least 1, not {repeat!r}")
        super().__init__(searcher.metric, searcher.mode)
        self.searcher, self.repeat, self.set_index = searcher, repeat, set_index
        self._group: dict[str, str] = {}  # trial → the first one with its config
        self._values: dict[str, list[float | None]] = {}
        self._current: tuple[str, Config, int] | None = None

    def set_search_properties(self, metric: Any, mode: Any, config: Config,
                              **spec: Any) -> bool:
        super().set_search_properties(metric, mode, config, **spec)
        return self.searcher.set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Config | str | None:
        if self._current is None:
            found = self.searcher.suggest(trial_id)
            if not isinstance(found, dict):
                return found
            self._current = trial_id, found, 0
            self._values[trial_id] = []
        first, config, index = self._current
        self._current = (first, config, index + 1) if index + 1 < self.repeat else None
        self._group[trial_id] = first
        return {**config, self.INDEX: index} if self.set_index else dict(config)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None,
                          error: bool = False) -> None:
        first = self._group.pop(trial_id, None)
        if first is None:
            return
        value = None if error or not result or self.metric is None else value_of(
            result, self.metric)
        values = self._values[first]
        values.append(value)
        if len(values) < self.repeat:
            return
        counted = [v for v in self._values.pop(first) if v is not None]
        if counted:
            self.searcher.on_trial_complete(first, {self.metric or "": sum(counted) / len(counted)})
        else:
            self.searcher.on_trial_complete(first, None, True)

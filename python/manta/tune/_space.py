# SPDX-License-Identifier: Apache-2.0
"""What a config may be: values to search among, in the place of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from manta._names import public


@public
class Domain:
    """A value that every trial gets another of. Made by uniform(), choice() and their like."""

    def __init__(self, text: str, spec: dict[str, Any]):
        self._text, self._spec = text, spec

    def __repr__(self) -> str:
        return self._text

    def sample(self, size: int | None = None, *, seed: int | None = None) -> Any:
        """A value at random, or a list of them."""
        import random
        from manta import _manta
        search = _manta.Search("random", {"x": self.spec([])}, None,
                               random.getrandbits(63) if seed is None else seed)
        drawn = [search.propose(i)["x"] for i in range(1 if size is None else size)]
        return drawn[0] if size is None else drawn

    def spec(self, calls: list[Callable[..., Any]]) -> dict[str, Any]:
        """As libmanta reads it; functions go to `calls`."""
        return self._spec

    def options(self) -> list[Any] | None:
        """What a choice is among; None: it is none."""
        return None


class _Options(Domain):
    """One of a list, or each of them; options may hold domains themselves."""

    def __init__(self, name: str, key: str, options: Iterable[Any]):
        self._options = list(options)
        super().__init__(f"{name}({self._options!r})", {})
        self._key = key

    def spec(self, calls: list[Callable[..., Any]]) -> dict[str, Any]:
        return {self._key: [spec_of(o, calls) for o in self._options]}

    def options(self) -> list[Any] | None:
        return self._options


class _Call(Domain):
    def __init__(self, function: Callable[..., Any]):
        super().__init__(f"sample_from({function!r})", {})
        self._function = function

    def sample(self, size: int | None = None, *, seed: int | None = None) -> Any:
        raise TypeError(f"{self!r} is drawn with the config of its trial, not alone")

    def spec(self, calls: list[Callable[..., Any]]) -> dict[str, Any]:
        calls.append(self._function)
        return {"$call": len(calls) - 1}


# --- what a user writes ---------------------------------------------------------------------------


def _range(text: str, low: float, high: float, q: float = 0, *, log: bool = False,
           whole: bool = False) -> Domain:
    return Domain(text, {"$range": {"low": low, "high": high, "q": q, "log": log, "int": whole}})


def _numbers(name: str, **given: Any) -> None:
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name}: {key} must be a number, not {value!r}")


def uniform(low: float = 0, high: float = 1) -> Domain:
    """A number between two, each as likely as any other."""
    _numbers("uniform", low=low, high=high)
    return _range(f"uniform({low}, {high})", low, high)


def quniform(low: float, high: float, q: float = 1) -> Domain:
    """The same, rounded to multiples of q."""
    _numbers("quniform", low=low, high=high, q=q)
    return _range(f"quniform({low}, {high}, {q})", low, high, q)


def loguniform(low: float, high: float, base: float = 10) -> Domain:
    """A number whose logarithm is uniform: for learning rates. (The base makes no difference.)"""
    _numbers("loguniform", low=low, high=high)
    return _range(f"loguniform({low}, {high})", low, high, log=True)


def qloguniform(low: float, high: float, q: float, base: float = 10) -> Domain:
    """The same, rounded to multiples of q."""
    _numbers("qloguniform", low=low, high=high, q=q)
    return _range(f"qloguniform({low}, {high}, {q})", low, high, q, log=True)


def randn(mean: float = 0, sd: float = 1) -> Domain:
    """A number with the normal distribution."""
    _numbers("randn", mean=mean, sd=sd)
    return Domain(f"randn({mean}, {sd})", {"$normal": {"mean": mean, "sd": sd, "q": 0}})


def qrandn(mean: float, sd: float, q: float) -> Domain:
    """The same, rounded to multiples of q."""
    _numbers("qrandn", mean=mean, sd=sd, q=q)
    return Domain(f"qrandn({mean}, {sd}, {q})", {"$normal": {"mean": mean, "sd": sd, "q": q}})


def _whole(name: str, args: tuple[Any, ...], *, log: bool = False) -> Domain:
    low, high = args if len(args) == 2 else (0, *args)
    for value in (low, high):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} takes whole numbers, not {value!r}")
    if high <= low:
        raise ValueError(f"{name}({low}, {high}): there is no number from {low} up to, but not "
                         f"including, {high}")
    return _range(f"{name}({low}, {high})", low, high - 1, log=log, whole=True)


def randint(*bounds: int) -> Domain:
    """randint(low, high): a whole number from low up to, but not including, high. randint(high)
    begins at 0."""
    if len(bounds) not in (1, 2):
        raise TypeError(f"randint takes two numbers, low and high, not {len(bounds)}\n"
                        f"hint: choice({list(bounds)}) is one of a list")
    return _whole("randint", bounds)


def lograndint(low: int, high: int, base: float = 10) -> Domain:
    """A whole number whose logarithm is uniform, below high."""
    return _whole("lograndint", (low, high), log=True)


def qrandint(low: int, high: int, q: int = 1) -> Domain:
    """A whole number from low to high, both included, rounded to multiples of q."""
    _numbers("qrandint", low=low, high=high, q=q)
    return _range(f"qrandint({low}, {high}, {q})", low, high, q, whole=True)


def qlograndint(low: int, high: int, q: int, base: float = 10) -> Domain:
    """The same, uniform in the logarithm."""
    _numbers("qlograndint", low=low, high=high, q=q)
    return _range(f"qlograndint({low}, {high}, {q})", low, high, q, log=True, whole=True)


def choice(categories: Iterable[Any]) -> Domain:
    """One of a list. What lies inside of an option counts only where that one is chosen."""
    options = _Options("choice", "$choice", categories)
    if not options._options:
        raise ValueError("choice([]): there is nothing to choose")
    return options


def sample_from(func: Callable[..., Any]) -> Domain:
    """What the function returns: it gets nothing, or what its trial has so far, by name
    (spec.config.lr)."""
    if not callable(func):
        raise TypeError(f"sample_from takes a function, not {func!r}")
    return _Call(func)


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Every one of a list, crossed with all other grids."""
    listed = list(values)
    if not listed:
        raise ValueError("grid_search([]): there is nothing to try")
    return {"grid_search": listed}


# --- for libmanta ---------------------------------------------------------------------------------


def spec_of(o: Any, calls: list[Callable[..., Any]]) -> Any:
    """A space, or a part of one, as libmanta reads it."""
    if isinstance(o, Domain):
        return o.spec(calls)
    if is_part(o):
        if set(o) == {"grid_search"}:
            return {"$grid": [spec_of(v, calls) for v in o["grid_search"]]}
        if len(o) == 1 and str(next(iter(o))).startswith("$"):
            return {"$literal": dict(o)}
        _check_keys(o)
        return {k: spec_of(v, calls) for k, v in o.items()}
    if isinstance(o, list):
        return [spec_of(v, calls) for v in o]
    if isinstance(o, (tuple, set)) and any(map(has_domain, o)):
        raise TypeError(f"{o!r}: nothing is chosen inside of a {type(o).__name__}\n"
                        f"hint: a list, or tune.choice of several of them")
    return o


def _check_keys(o: Mapping[Any, Any]) -> None:
    wrong = [k for k in o if not isinstance(k, str)]
    if wrong and any(map(has_domain, o.values())):
        raise TypeError(f"a dict with something to choose has names as its keys, not {wrong[0]!r}")


def is_part(o: Any) -> bool:
    """Whether it is a dict of the space. Others that look like one (of OmegaConf, EasyDict) are
    values, and stay what they are, unless something is chosen inside of them."""
    return type(o) is dict or isinstance(o, Mapping) and has_domain(o)


def has_domain(o: Any) -> bool:
    """Whether trials get different values of it."""
    if isinstance(o, Domain):
        return True
    if isinstance(o, Mapping):
        try:
            return set(o) == {"grid_search"} or any(map(has_domain, o.values()))
        except Exception:  # one that checks its values when they are asked for
            return False
    return isinstance(o, (list, tuple, set)) and any(map(has_domain, o))


class _ByName(SimpleNamespace):
    """A config whose entries are attributes, and entries still."""

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)


class _Spec(_ByName):
    """What sample_from() functions are given. Both ways to write them are in use:
    spec.config.layers, and config["layers"]."""

    def __getitem__(self, key: str) -> Any:
        return self.config if key == "config" else self.config[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.config.get(key, default)


def _by_name(o: Any) -> Any:
    if not isinstance(o, dict):
        return o
    return _ByName(**{str(k): _by_name(v) for k, v in o.items()})


def fill_in(config: dict[str, Any], calls: list[Callable[..., Any]]) -> dict[str, Any]:
    """A config with what sample_from() asks for: those that need others come after them."""
    waiting = list(_places(config))
    while waiting:
        left = [at for at in waiting if not _fill_one(config, at, calls)]
        if len(left) == len(waiting):
            _fill_one(config, left[0], calls, last=True)
        waiting = left
    return config


def _places(o: Any) -> Iterable[tuple[Any, Any]]:
    """(container, key) of every call that is left."""
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(o, dict):
        pairs = list(o.items())
    elif isinstance(o, list):
        pairs = list(enumerate(o))
    for key, value in pairs:
        if isinstance(value, dict) and set(value) == {"$call"}:
            yield o, key
        else:
            yield from _places(value)


def _fill_one(config: dict[str, Any], at: tuple[Any, Any], calls: list[Callable[..., Any]],
              last: bool = False) -> bool:
    container, key = at
    function = calls[container[key]["$call"]]
    known = _by_name({k: v for k, v in config.items() if not _is_open(v)})
    try:
        container[key] = _called(function, _Spec(config=known))
    except (AttributeError, KeyError):  # it looks at one that is not there yet
        if last:
            raise
        return False
    return True


def _is_open(o: Any) -> bool:
    return isinstance(o, dict) and set(o) == {"$call"}


def _called(function: Callable[..., Any], spec: Any) -> Any:
    import inspect
    try:
        takes = len(inspect.signature(function).parameters) > 0
    except (TypeError, ValueError):
        takes = False
    return function(spec) if takes else function()

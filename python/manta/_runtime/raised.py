# SPDX-License-Identifier: Apache-2.0
"""An exception on its way from a worker to the driver: its own class, arguments and attributes
whatever its __init__ takes, with its causes, contexts, members and notes.

(1) Every part travels by itself. One that cannot, or that is large, arrives as words: nothing that
    an exception holds can hide it.
(2) It is made anew without its class's own __new__ and __init__: the builtin class below it gets
    the arguments, and the attributes are put back.
(3) One whose class does not arrive becomes one of that name below the nearest builtin class.
"""

from __future__ import annotations

import builtins
import pickle
from typing import Any, Callable, Iterator

from manta._pickled import again, builtin
from manta._runtime import frames, pickling

PART_BYTES = 1 << 20  # of an argument or an attribute
CHAIN = 50  # exceptions that hang together

Node = dict[str, Any]


# --- in the worker --------------------------------------------------------------------------------


def dumps(error: BaseException) -> bytes:
    nodes: list[Node] = []
    _describe(error, nodes, {})
    return pickle.dumps(nodes)


def _describe(e: BaseException | None, nodes: list[Node], known: dict[int, int]) -> int | None:
    """Its place among the nodes."""
    if e is None or (id(e) not in known and len(nodes) == CHAIN):
        return None
    if id(e) in known:
        return known[id(e)]
    known[id(e)] = len(nodes)
    node: Node = {"names": names_of(type(e)), "text": text_of(e), "cls": _part(type(e)),
                  "suppress": e.__suppress_context__, "frames": _safely(
                      lambda: frames.describe(e.__traceback__), []), "members": None}
    nodes.append(node)
    node["args"], node["state"] = _contents(e)
    if isinstance(e, BaseExceptionGroup):
        node["args"] = [_part(e.message)]
        found = [_describe(member, nodes, known) for member in e.exceptions]
        node["members"] = [i for i in found if i is not None]
    node["cause"] = _describe(e.__cause__, nodes, known)
    node["context"] = _describe(e.__context__, nodes, known)
    return known[id(e)]


def _contents(e: BaseException) -> tuple[list[bytes], dict[str, bytes]]:
    """Arguments and attributes, each by itself."""
    _, args, *state = _safely(lambda: builtin(type(e)).__reduce__(e), (None, e.args))
    held = dict(state[0]) if state and isinstance(state[0], dict) else {}
    held |= vars(e)
    held |= dict(_slots(e))
    return [_part(a) for a in args], {k: _part(v) for k, v in held.items()}


def _slots(e: BaseException) -> Iterator[tuple[str, Any]]:
    for cls in type(e).__mro__:
        names = vars(cls).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(e, name):
                yield name, getattr(e, name)


def _part(o: Any) -> bytes:
    data: bytes = _safely(lambda: pickling.dumps_unwrapped(o), b"")
    if not data or (len(data) > PART_BYTES and not isinstance(o, type)):
        data = pickle.dumps(frames.Shown(frames.text_of(o)))
    return data


def _safely(f: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return f()
    except Exception:
        return otherwise


def text_of(e: BaseException) -> str:
    """str(e), whatever its class makes of that."""
    return plain(_safely(lambda: str(e), f"<a {type(e).__name__} that has no text>"))


def plain(text: str) -> str:
    """As C and UTF-8 have it."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def names_of(cls: type) -> list[str]:
    """The class and its bases, for a driver that has none but the builtin ones."""
    return [f"{c.__module__}.{c.__qualname__}" for c in cls.__mro__]


# --- in the driver --------------------------------------------------------------------------------


def loads(data: bytes) -> BaseException:
    nodes: list[Node] = pickle.loads(data)
    made: dict[int, BaseException] = {}
    for i in range(len(nodes)):
        _make(i, nodes, made)
    for i, node in enumerate(nodes):
        e = made[i]
        for name, at in (("__cause__", node["cause"]), ("__context__", node["context"])):
            if at is not None:
                object.__setattr__(e, name, made[at])
        object.__setattr__(e, "__suppress_context__", node["suppress"])
    return made[0]


def _make(i: int, nodes: list[Node], made: dict[int, BaseException]) -> BaseException:
    if i in made:
        return made[i]
    node = nodes[i]
    args = [_load(a) for a in node["args"]]
    if node["members"] is not None:
        args.append([_make(j, nodes, made) for j in node["members"]])
    try:
        e = again(_load(node["cls"]), args)
    except Exception:
        e = _stand_in(node["names"], node["text"], args)
    for name, part in node["state"].items():
        _put(e, name, _load(part))
    made[i] = e.with_traceback(_safely(lambda: frames.rebuild(node["frames"]), None))
    return made[i]


def reduce(e: BaseException) -> Any:
    """For a pickle, as a value: pickle's own way calls __init__. None: its class has another."""
    own: Any = getattr(type(e), "__reduce__")
    if own is not getattr(builtin(type(e)), "__reduce__"):
        return None
    _, args, *state = own(e)
    return (again, (type(e), args), *state)


def _put(e: BaseException, name: str, value: Any) -> None:
    """Past a __setattr__ that refuses."""
    try:
        object.__setattr__(e, name, value)
    except (AttributeError, TypeError):  # what C keeps for itself
        pass


def _load(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as e:
        return frames.Shown(f"<could not be sent: {type(e).__name__}: {e}>")


def _stand_in(names: list[str], text: str, args: list[Any]) -> BaseException:
    """A class of the lost one's name below the first of its bases that is builtin."""
    base: type[BaseException] = Exception
    for name in names:
        module, _, short = name.rpartition(".")
        found = getattr(builtins, short, None) if module == "builtins" else None
        if isinstance(found, type) and issubclass(found, BaseException):
            base = found
            break
    if base in (Exception, BaseException):
        from manta._runtime.errors import TrainingFailed
        base = TrainingFailed
    module, _, short = names[0].rpartition(".")
    cls: type[BaseException] = type(short, (base,), {"__module__": module, "__str__":
                                                     lambda self: text})
    if issubclass(cls, BaseExceptionGroup):
        return again(cls, [text, args[-1]])
    e = cls.__new__(cls)
    e.args = (text,)
    return e

# SPDX-License-Identifier: Apache-2.0
"""What fit() raises: the exception of the train function by its own type, which is a
TrainingFailedError as well."""

from __future__ import annotations

import types
from typing import Any

from manta._names import public
from manta._pickled import again, builtin


@public
class TrainingFailedError(RuntimeError):
    """A run of fit() failed. What is raised is of the type that the train function raised, too:
    both `except ValueError` and `except TrainingFailedError` catch its ValueError."""


def as_failure(e: Exception) -> Exception:
    """The same exception, of a class below both. One whose class cannot have two bases stays as it
    is, with a TrainingFailedError for its cause."""
    if isinstance(e, TrainingFailedError):
        return e
    own = type(e)
    bases = (TrainingFailedError,) if issubclass(TrainingFailedError, own) else (
        own, TrainingFailedError)
    body = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__reduce__": _reduce}
    try:
        made = again(types.new_class(own.__name__, bases, None, lambda space: space.update(body)),
                     _arguments(e))
        vars(made).update(vars(e))
    except Exception:
        e.__cause__ = e.__cause__ or TrainingFailedError(str(e))
        return e
    made.__cause__, made.__context__ = e.__cause__, e.__context__
    made.__suppress_context__ = e.__suppress_context__
    assert isinstance(made, Exception)
    return made.with_traceback(e.__traceback__)


def _arguments(e: BaseException) -> Any:
    """Those of the builtin class below its own: more than args, of some."""
    return getattr(builtin(type(e)), "__reduce__")(e)[1]


def _reduce(self: BaseException) -> Any:
    """In a pickle it is of its own type alone: that one has a name."""
    return again, (type(self).__mro__[1], _arguments(self)), vars(self)

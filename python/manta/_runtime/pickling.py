# SPDX-License-Identifier: Apache-2.0
"""Functions and values on their way to workers and back. The work is done in `travel`, which is
imported when something travels."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any


def dumps(o: Any, parts: dict[str, Any],
          apart: Callable[[pickle.PickleBuffer], bool] | None = None
          ) -> tuple[bytes, dict[str, bytes]]:
    """The pickle of `o`, and the definitions of the main script that it does not reach, by name.
    What cannot travel is a TypeError that says where it is. parts: what `o` is made of, by the
    names that the user knows. apart: takes buffers that are not to be in the pickle."""
    from manta._runtime import travel
    out = io.BytesIO()
    pickler = travel.Outward(out, apart)
    try:
        pickler.dump(o)
    except Exception as e:
        from manta._runtime import blame
        raise TypeError(blame.explain(o, parts, e)) from None
    return out.getvalue(), travel.rest_of(pickler)


def dumps_unwrapped(o: Any) -> bytes:
    """The pickle of `o` for the driver, without what only a process group has a use for: there is
    none there."""
    out = io.BytesIO()
    dump_unwrapped(o, out)
    return out.getvalue()


def dump_unwrapped(o: Any, file: Any) -> None:
    """The same into a file, or what has a method write."""
    from manta._runtime import travel
    travel.Homeward(file).dump(o)

# SPDX-License-Identifier: Apache-2.0
"""Where the time went."""

from __future__ import annotations

from typing import Any

from manta.data.plan import Plan

_SECONDS = {"parse": "reading and parsing (threads)", "read": "of these in reads of files",
            "step": "of these in functions over rows", "idle": "threads waited for room",
            "make": "rows were mixed, cut and copied", "wait": "waited for batches"}


class Stats(dict[str, Any]):
    """What was read so far of the files behind a data set, and where its iterators spent their
    time, in seconds. Printed, a line each."""

    @staticmethod
    def of(plan: Plan) -> Stats:
        found = Stats(plan.data().stats())
        times: dict[str, float] = dict(plan.times)
        for it in list(plan.iterators):
            for key, value in it.stats().items():
                before = times.get(key, 0)
                times[key] = max(before, value) if key == "bytes_max" else before + value
        found["rows"] = max(found["rows"], times.pop("rows", 0))  # also with columns of its own
        return Stats({"batches": 0, **dict.fromkeys(_SECONDS, 0.0), **found, **times})

    def __str__(self) -> str:
        lines = [f"rows {self['rows']}, batches {self['batches']}, "
                 f"{self['bytes'] / 1e6:.1f} MB read"]
        if self["skipped"]:
            lines.append(f"rows skipped {self['skipped']}: {self['first_skip']}")
        lines += [f"{key:6} {self[key]:9.3f} s  {said}" for key, said in _SECONDS.items()]
        return "\n".join(lines)

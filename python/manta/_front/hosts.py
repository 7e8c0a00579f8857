# SPDX-License-Identifier: Apache-2.0
"""The hosts of a trainer."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from manta._names import public


@public
class Host(NamedTuple):
    """A host that workers run on.

    name: for messages. slots: workers it may have; 0: one per CPU, and more if there are not
    enough. command: run by /bin/sh in the driver's place, and leads to `manta agent --stdio` on
    that host; None: the driver's own host. address: where its workers are reached, or the name of
    the interface that has it; None: where the command's channel runs, or the way to the others.
    """
    name: str
    slots: int = 0
    command: str | None = None
    address: str | None = None


_HINT = "hint: hosts=[Host(\"node1\", 2, \"ssh node1 manta agent --stdio\"), …]"
Plain = tuple[str | None, int, str | None, str | None]  # what libmanta's extension takes


def checked(hosts: Any) -> list[Plain] | None:
    """As libmanta wants them; None: MANTA_HOSTS, or this host."""
    if hosts is None:
        return None
    if isinstance(hosts, (str, Host)) or not isinstance(hosts, Sequence):
        raise TypeError(f"hosts must be a list of Host, not {hosts!r}\n{_HINT}")
    if not hosts:
        raise ValueError("hosts is empty: name a host, or leave it out")
    return [_checked_host(h) for h in hosts]


def _checked_host(given: Any) -> Host:
    if not isinstance(given, (tuple, list)) or not 1 <= len(given) <= 4:
        raise TypeError(f"hosts must be a list of Host, with {given!r} in it\n{_HINT}")
    host = Host(*given)
    if not isinstance(host.name, str) or not host.name.strip():
        raise ValueError(f"{host}: a host needs a name")
    if isinstance(host.slots, bool) or not isinstance(host.slots, int):
        raise TypeError(f"{host}: slots must be an int")
    for text in (host.command, host.address):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{host}: command and address must be strings or None")
    return host

# SPDX-License-Identifier: Apache-2.0
"""Names and types of columns."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

from manta import _manta
from manta._names import public
from manta.data.plan import BOOL, NUMBER, STRING, Field


class Described(NamedTuple):
    """A column: its name, and its type as `types=` takes it."""
    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def type_text(field: Field) -> str:
    if field.kind != NUMBER:
        return {BOOL: "bool", STRING: "string"}.get(field.kind, "bytes")
    shape = f"[{','.join(map(str, field.shape))}]" if field.shape else ""
    return _manta.DTYPES[field.dtype].lower() + shape


@public
class Schema(Sequence[Described]):
    """The columns of a data set; printed, a line each."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = [Described(*f) for f in fields]

    @property
    def names(self) -> list[str]:
        return [f.name for f in self._fields]

    @property
    def types(self) -> list[str]:
        return [f.type for f in self._fields]

    def __getitem__(self, at: int) -> Described:  # type: ignore[override]
        return self._fields[at]

    def __iter__(self) -> Iterator[Described]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._fields == other._fields

    def __reduce__(self) -> tuple[type[Schema], tuple[list[tuple[str, str]]]]:
        return (Schema, ([tuple(f) for f in self._fields],))  # type: ignore[misc]

    def __repr__(self) -> str:
        return "\n".join(map(str, self._fields))

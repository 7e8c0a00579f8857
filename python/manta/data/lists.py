# SPDX-License-Identifier: Apache-2.0
"""Lists of numbers, as pyarrow has them, that are all of one length: such as embeddings and tokens.
Most libraries write them as lists of any length; a column of manta has tensors of one shape."""

from __future__ import annotations

from typing import Any


def is_list(kind: Any) -> bool:
    """Whether it is a list of numbers or bools, of any length."""
    from pyarrow import types
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    value = kind.value_type
    return bool(types.is_integer(value) or types.is_floating(value) or types.is_boolean(value))


def fixed_type(kind: Any, length: int) -> Any:
    """The list of this length; bools become numbers."""
    import pyarrow
    value = pyarrow.uint8() if pyarrow.types.is_boolean(kind.value_type) else kind.value_type
    return pyarrow.list_(value, length)


def length_of(column: Any) -> int | None:
    """That all lists of a column have; None: they differ, or there are none."""
    from pyarrow import compute
    found = compute.min_max(compute.list_value_length(column)).as_py()
    return found["min"] if found["min"] == found["max"] else None


def wrong(where: str, name: str) -> ValueError:
    return ValueError(f"{where}: column {name!r} has lists of different lengths, or none\n"
                      "hint: pad them to one length, or leave the column out (columns=[…])")


def fixed(where: str, name: str, column: Any, kind: Any) -> Any:
    """The column with this type, if all its lists have the length."""
    import pyarrow
    if column.type.equals(kind):
        return column
    if pyarrow.types.is_boolean(column.type.value_type):
        column = column.cast(pyarrow.list_(pyarrow.uint8()))
    try:
        return column.cast(kind)
    except pyarrow.ArrowInvalid:
        raise wrong(where, name) from None


def fixed_table(where: str, given: Any) -> Any:
    """A table or batch of pyarrow whose columns of lists have one length each; anything else is
    given back."""
    schema: Any = getattr(given, "schema", None)
    if not (type(schema).__module__.startswith("pyarrow") and hasattr(given, "column")
            and any(is_list(f.type) for f in schema)):
        return given
    import pyarrow
    table = pyarrow.table(given) if hasattr(given, "__arrow_c_array__") else given
    for i, field in enumerate(schema):
        if is_list(field.type):
            if (length := length_of(table.column(i))) is None:
                raise wrong(where, field.name)
            kind = fixed_type(field.type, length)
            table = table.set_column(i, field.name, fixed(where, field.name, table.column(i), kind))
    return table

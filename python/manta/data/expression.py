# SPDX-License-Identifier: Apache-2.0
"""Expressions over columns, which run in C: `col("age") > 30`.

    from manta.data import col, where

    ds.filter((col("age") > 30) & ~col("name").is_null())
    ds.add_column("ratio", where(col("b") == 0, 0.0, col("a") / col("b")))

An expression is a tree of lists, as include/manta/data.h has it; nothing is computed here. Null in,
null out; `&` and `|` know three values; a filter keeps rows that are true.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, Sequence

from manta._names import public


@public
class Expression:
    """What `col()`, `lit()` and `where()` give, and every operation on it."""

    __slots__ = ("tree", "name")

    def __init__(self, tree: Any, name: str | None = None) -> None:
        self.tree = tree
        self.name = name

    def __repr__(self) -> str:
        return _print(self.tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Expression, (self.tree, self.name))

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is an expression, neither true nor false here\n"
                        "hint: write & for and, | for or, ~ for not, each side in parentheses")

    __hash__ = object.__hash__

    def alias(self, name: str) -> Expression:
        """The name of the column that it becomes, in `map(expression)`."""
        return Expression(self.tree, name)

    # --- arithmetic ---

    def __add__(self, other: Any) -> Expression:
        return _call("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _call("+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _call("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _call("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _call("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _call("*", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _call("/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _call("/", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _call("//", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _call("//", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _call("%", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _call("%", other, self)

    def __pow__(self, other: Any) -> Expression:
        return _call("**", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return _call("**", other, self)

    def __neg__(self) -> Expression:
        return _call("neg", self)

    def __abs__(self) -> Expression:
        return _call("abs", self)

    def abs(self) -> Expression:
        return _call("abs", self)

    def sqrt(self) -> Expression:
        return _call("sqrt", self)

    def exp(self) -> Expression:
        return _call("exp", self)

    def log(self) -> Expression:
        """The natural logarithm."""
        return _call("log", self)

    def floor(self) -> Expression:
        return _call("floor", self)

    def ceil(self) -> Expression:
        return _call("ceil", self)

    def round(self) -> Expression:
        return _call("round", self)

    # --- comparison and logic ---

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return _call("==", self, other)

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return _call("!=", self, other)

    def __lt__(self, other: Any) -> Expression:
        return _call("<", self, other)

    def __le__(self, other: Any) -> Expression:
        return _call("<=", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _call(">", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _call(">=", self, other)

    def __and__(self, other: Any) -> Expression:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _call("or", other, self)

    def __invert__(self) -> Expression:
        return _call("not", self)

    def is_in(self, values: Sequence[Any]) -> Expression:
        return Expression(["is_in", self.tree, [_literal(v) for v in values]])

    def between(self, low: Any, high: Any) -> Expression:
        """Both ends count."""
        return _call("and", self >= low, self <= high)

    # --- nulls, types ---

    def is_null(self) -> Expression:
        return _call("is_null", self)

    def is_not_null(self) -> Expression:
        return _call("not", _call("is_null", self))

    def is_nan(self) -> Expression:
        return _call("is_nan", self)

    def fill_null(self, value: Any) -> Expression:
        return _call("fill_null", self, value)

    def cast(self, dtype: str) -> Expression:
        """To "f32", "i64", "bool", "string", …; what cannot be becomes null."""
        return Expression(["cast", self.tree, dtype])

    # --- strings ---

    @property
    def str(self) -> Expression:
        """The same: `col("name").str.lower()` as other libraries write it."""
        return self

    def length(self) -> Expression:
        """Characters of a string, bytes of bytes."""
        return _call("length", self)

    def lower(self) -> Expression:
        return _call("lower", self)

    def upper(self) -> Expression:
        return _call("upper", self)

    def strip(self) -> Expression:
        return _call("strip", self)

    def concat(self, *others: Any) -> Expression:
        return _call("concat", self, *others)

    def contains(self, part: Any) -> Expression:
        return _call("contains", self, part)

    def starts_with(self, part: Any) -> Expression:
        return _call("starts_with", self, part)

    def ends_with(self, part: Any) -> Expression:
        return _call("ends_with", self, part)


def col(name: str) -> Expression:
    """The column of this name."""
    if not isinstance(name, str):
        raise TypeError(f"col({name!r}): the name of a column is a string")
    return Expression(["col", name])


def lit(value: Any) -> Expression:
    """A value that is the same in every row."""
    return Expression(["lit", _literal(value)])


def where(condition: Any, then: Any, otherwise: Any) -> Expression:
    """`then` in rows where the condition is true, `otherwise` in the others."""
    return _call("where", condition, then, otherwise)


def tree_of(value: Any) -> Any:
    """The tree of an expression, or of a plain value."""
    return value.tree if isinstance(value, Expression) else _literal(value)


def _call(operation: str, *arguments: Any) -> Expression:
    return Expression([operation, *(tree_of(a) for a in arguments)])


def _literal(value: Any) -> Any:
    """As Python has it: what numpy and torch have is a scalar of one element."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return value.item()
    plains: tuple[Any, ...] = (int, float, str, bytes)
    for plain in plains:
        if isinstance(value, plain):  # of a class below it
            return plain(value)
    raise TypeError(f"{value!r} in an expression: it takes expressions, bools, numbers, strings, "
                    "bytes and None")


# --- text -----------------------------------------------------------------------------------------

_BINARY = {"Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%",
           "Pow": "**", "BitAnd": "and", "BitOr": "or", "And": "and", "Or": "or", "Eq": "==",
           "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}
_UNARY = {"Not": "not", "Invert": "not", "USub": "neg"}


def parse(text: str) -> Expression:
    """An expression as text, where a name is a column: `"age > 30 and city == 'Bonn'"`."""
    try:
        return Expression(_tree(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, _NotHere) as e:
        raise ValueError(f"{text!r} is no expression over columns: {e}\nhint: names, numbers and "
                         "text with comparison, arithmetic, and, or, not, in; or col(\"age\") > 30"
                         ) from None


class _NotHere(Exception):
    """Python that is no expression over columns."""


def _tree(node: ast.AST) -> Any:
    if isinstance(node, ast.Name):
        return ["col", node.id]
    if isinstance(node, ast.Constant):
        return _literal(node.value)
    if isinstance(node, ast.BinOp) and type(node.op).__name__ in _BINARY:
        return [_BINARY[type(node.op).__name__], _tree(node.left), _tree(node.right)]
    if isinstance(node, ast.UnaryOp) and type(node.op).__name__ in _UNARY:
        return [_UNARY[type(node.op).__name__], _tree(node.operand)]
    if isinstance(node, ast.BoolOp):
        return functools.reduce(lambda a, b: [_BINARY[type(node.op).__name__], a, b],
                                map(_tree, node.values))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        found = [_comparison(op, a, b) for op, a, b in zip(node.ops, sides, sides[1:])]
        return functools.reduce(lambda a, b: ["and", a, b], found)
    raise _NotHere(f"{ast.unparse(node)!r} is not known here")


def _comparison(op: ast.cmpop, left: ast.AST, right: ast.AST) -> Any:
    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple, ast.Set)):
        try:
            values = list(ast.literal_eval(right))
        except (TypeError, ValueError):
            values = [()]
        if any(isinstance(v, (list, tuple, set, dict)) for v in values):
            raise _NotHere("what comes behind `in` is a list of values")
        found = ["is_in", _tree(left), values]
        return ["not", found] if isinstance(op, ast.NotIn) else found
    if type(op).__name__ not in _BINARY:
        raise _NotHere("`in` and `not in` take a list of values; there is no `is`")
    return [_BINARY[type(op).__name__], _tree(left), _tree(right)]


# --- printing -------------------------------------------------------------------------------------

_INFIX = {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"}


def _print(tree: Any) -> str:
    if not isinstance(tree, list):
        return repr(tree)
    operation, *rest = tree
    if operation == "col":
        return f"col({rest[0]!r})"
    if operation == "lit":
        return repr(rest[0])
    if operation in _INFIX:
        symbol = {"and": "&", "or": "|"}.get(operation, operation)
        return f"({_print(rest[0])} {symbol} {_print(rest[1])})"
    if operation in ("neg", "not"):
        return f"{'-' if operation == 'neg' else '~'}{_print(rest[0])}"
    if operation == "where":
        return f"where({', '.join(map(_print, rest))})"
    if operation == "is_in":
        return f"{_print(rest[0])}.is_in({rest[1]!r})"
    return f"{_print(rest[0])}.{operation}({', '.join(map(_print, rest[1:]))})"

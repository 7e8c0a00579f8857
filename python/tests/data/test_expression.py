# SPDX-License-Identifier: Apache-2.0
"""Expressions: what they look like, and that C computes what Python would."""

from __future__ import annotations

import math
import pickle
from typing import Any, Callable

import pytest

from manta.data import col, from_items, lit, where

ROWS = [{"a": i, "b": i / 4 - 2, "s": f" Wort{i % 4} ", "n": None if i % 3 else i}
        for i in range(40)]


def computed(expression: Any) -> list[Any]:
    return [r["value"] for r in from_items(ROWS).map(expression).take_all()]


CASES: list[tuple[Any, Callable[[dict[str, Any]], Any]]] = [
    (col("a") + 1, lambda r: r["a"] + 1),
    (1 + col("a"), lambda r: 1 + r["a"]),
    (col("a") - col("b"), lambda r: r["a"] - r["b"]),
    (10 - col("a"), lambda r: 10 - r["a"]),
    (col("a") * 3, lambda r: r["a"] * 3),
    (2.5 * col("b"), lambda r: 2.5 * r["b"]),
    (col("a") / 8, lambda r: r["a"] / 8),
    (7 // (col("a") + 1), lambda r: 7 // (r["a"] + 1)),
    (col("a") // 3, lambda r: r["a"] // 3),
    (-col("a") % 7, lambda r: -r["a"] % 7),
    (col("b") ** 2, lambda r: r["b"] ** 2),
    (2 ** col("b"), lambda r: 2 ** r["b"]),
    (abs(col("b")), lambda r: abs(r["b"])),
    (col("a").sqrt(), lambda r: math.sqrt(r["a"])),
    (col("b").floor(), lambda r: float(math.floor(r["b"]))),
    (col("b").ceil(), lambda r: float(math.ceil(r["b"]))),
    (col("a") == 3, lambda r: r["a"] == 3),
    (col("a") != 3, lambda r: r["a"] != 3),
    (3 < col("a"), lambda r: r["a"] > 3),
    (col("a") <= 3, lambda r: r["a"] <= 3),
    ((col("a") > 3) & (col("b") < 1), lambda r: r["a"] > 3 and r["b"] < 1),
    ((col("a") > 3) | ~(col("b") < 1), lambda r: r["a"] > 3 or not r["b"] < 1),
    (col("a").between(2, 5), lambda r: 2 <= r["a"] <= 5),
    (col("a").is_in([1, 4]), lambda r: r["a"] in (1, 4)),
    (col("n").is_null(), lambda r: r["n"] is None),
    (col("n").is_not_null(), lambda r: r["n"] is not None),
    (col("n").fill_null(-1), lambda r: -1 if r["n"] is None else r["n"]),
    (col("n") + 1, lambda r: None if r["n"] is None else r["n"] + 1),
    (where(col("a") > 5, col("b"), 0.0), lambda r: r["b"] if r["a"] > 5 else 0.0),
    (col("s").strip().lower(), lambda r: r["s"].strip().lower()),
    (col("s").str.upper(), lambda r: r["s"].upper()),
    (col("s").length(), lambda r: len(r["s"])),
    (col("s").contains("2"), lambda r: "2" in r["s"]),
    (col("s").starts_with(" W"), lambda r: True),
    (col("s").ends_with("3 "), lambda r: r["s"].endswith("3 ")),
    (col("s") + "!", lambda r: r["s"] + "!"),
    (col("a").cast("f64"), lambda r: float(r["a"])),
    (lit(5), lambda r: 5),
]


@pytest.mark.parametrize("expression, says", CASES, ids=lambda e: "" if callable(e) else repr(e))
def test_c_computes_what_python_would(expression: Any,
                                      says: Callable[[dict[str, Any]], Any]) -> None:
    got, wanted = computed(expression), [says(r) for r in ROWS]
    assert got == wanted and [type(v) for v in got] == [type(v) for v in wanted]


def test_an_expression_is_no_condition() -> None:
    with pytest.raises(TypeError, match="neither true nor false.*\nhint: write & for and"):
        bool(col("a") > 1)
    with pytest.raises(TypeError, match="it takes expressions, bools"):
        col("a") + object()
    with pytest.raises(TypeError, match="the name of a column is a string"):
        col(3)  # type: ignore[arg-type]


def test_scalars_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert (col("a") > numpy.float32(1.5)).tree == [">", ["col", "a"], 1.5]
    assert (col("a") > numpy.int64(2)).tree == [">", ["col", "a"], 2]


def test_it_prints_and_travels() -> None:
    e = where((col("a") > 1) & ~col("n").is_null(), -col("b"), col("s").length()).alias("z")
    assert repr(e) == "where(((col('a') > 1) & ~col('n').is_null()), -col('b'), col('s').length())"
    other = pickle.loads(pickle.dumps(e))
    assert (other.tree, other.name) == (e.tree, "z")


TEXTS: list[tuple[str, list[int]]] = [
    ("a > 3", [4, 5]), ("1 < a <= 3 and s != 'w2'", [3]), ("not (a > 1)", [0, 1]),
    ("a in [1, 4] or s == \"w0\"", [0, 1, 4]), ("a not in (0, 1, 2, 3)", [4, 5]),
    ("a - 2 in [-1, +2]", [1, 4]),
    ("-a + 2 * a == 5", [5]), ("a % 2 == 1 and a // 2 == 1", [3]), ("(a > 3) & ~(a == 5)", [4])]


@pytest.mark.parametrize("text, kept", TEXTS, ids=range(len(TEXTS)))
def test_expressions_as_text(text: str, kept: list[int]) -> None:
    d = from_items([{"a": i, "s": f"w{i}"} for i in range(6)])
    for found in (d.filter(text), d.filter(expr=text)):
        assert [r["a"] for r in found.take_all()] == kept


@pytest.mark.parametrize("text", ["a >", "f(a)", "a.b > 1", "a is None", "a in s", "lambda: 1", "",
                                  "a in [[1]]", "a in {[1]}", "a in [s]"])
def test_text_that_is_no_expression(text: str) -> None:
    with pytest.raises(ValueError, match="is no expression over columns: .*\nhint: "):
        from_items([{"a": 1, "s": "x"}]).filter(text)

# SPDX-License-Identifier: Apache-2.0
"""Parts of a data set: some of its rows, cross validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from manta import _manta

if TYPE_CHECKING:
    from manta.data.dataset import Dataset

_WHOLE = 10 ** 9  # what fractions are counted in


def take_part(data: _manta.Data, start: int, end: int, of: int, shuffle: bool, seed: int
              ) -> _manta.Data:
    return data.part(start, end, of, shuffle, seed)


def parts(d: Dataset, n: int, equal: bool) -> list[Dataset]:
    """n data sets that have each row once; with `equal` all of the same length."""
    if n < 1:
        raise ValueError(f"split({n}): it is 1 or more")
    shuffle, seed = _chance(d)
    if not equal:
        return [d.step(take_part, i, i + 1, n, shuffle, seed) for i in range(n)]
    rows = d.count_rows()
    each = rows // n
    if each == 0:
        raise ValueError(f"split({n}, equal=True) of {rows} rows")
    return [d.step(take_part, i * each, (i + 1) * each, rows, shuffle, seed) for i in range(n)]


def parts_at(d: Dataset, places: Sequence[int]) -> list[Dataset]:
    """The rows up to each place, and those behind the last."""
    rows = d.count_rows()
    ends = [0, *(min(max(int(p), 0), rows) for p in places), rows]
    if sorted(ends) != ends:
        raise ValueError(f"split_at_indices({list(places)}): they have to rise")
    shuffle, seed = _chance(d)
    return [d.step(take_part, a, b, max(rows, 1), shuffle, seed) for a, b in zip(ends, ends[1:])]


def parts_by(d: Dataset, fractions: Sequence[float]) -> list[Dataset]:
    """A data set per fraction, and one of the rest."""
    if not fractions or min(fractions) <= 0 or sum(fractions) >= 1:
        raise ValueError(f"split_proportionately({list(fractions)}): fractions above 0, together "
                         "below 1")
    ends, at = [0], 0.0
    for f in fractions:
        at += f
        ends.append(round(at * _WHOLE))
    shuffle, seed = _chance(d)
    return [d.step(take_part, a, b, _WHOLE, shuffle, seed)
            for a, b in zip(ends, [*ends[1:], _WHOLE])]


def train_test(d: Dataset, test_size: int | float, shuffle: bool, seed: int
               ) -> tuple[Dataset, Dataset]:
    if isinstance(test_size, float):
        if not 0 < test_size < 1:
            raise ValueError(f"train_test_split({test_size}): a fraction between 0 and 1, or a "
                             "number of rows")
        of, train = _WHOLE, _WHOLE - round(test_size * _WHOLE)
    else:
        of = d.count_rows()
        train = of - test_size
        if test_size < 1 or train < 1:
            raise ValueError(f"train_test_split({test_size}) of {of} rows")
    if not shuffle:
        shuffle, seed = _chance(d)
    return (d.step(take_part, 0, train, of, shuffle, seed),
            d.step(take_part, train, of, of, shuffle, seed))


def folds(d: Dataset, splits: int, options: dict[str, Any]) -> tuple[tuple[Dataset, Dataset], ...]:
    """A (train, validation) pair per split."""
    from manta.data.plan import fold
    if splits < 2:
        raise ValueError(f"to_cv(splits={splits}): it is 2 or more")
    if not options["shuffle"] and not options["series"]:
        chance, seed = _chance(d)
        options = {**options, "shuffle": chance, "seed": seed if chance else options["seed"]}

    def part(split: int, validate: bool) -> Dataset:
        return d.step(fold, {**options, "folds": splits, "split": split, "validate": validate})
    return tuple((part(s, False), part(s, True)) for s in range(splits))


def _chance(d: Dataset) -> tuple[bool, int]:
    """Of a data set that is shuffled the parts are rows by chance, by its seed."""
    from manta.data.plan import shuffle
    for build, args in d.order:
        if build is shuffle:
            return True, args[0]
    return False, 0


def shard_count(rows: int, rank: int, ranks: int) -> int:
    """Rows that a rank gets of so many: as the loader divides the last batch."""
    rest = rows % ranks
    return rows // ranks + rest * (rank + 1) // ranks - rest * rank // ranks

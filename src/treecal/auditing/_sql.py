"""The SQL of the exact audit: one query, for DuckDB or Spark; and sample weights as whole numbers.

Sums of whole numbers depend on no order, chunk or engine. Each weight is multiplied by one power of two and rounded
down. The power depends only on the number of weights and the largest: all together stay below 2^61 and each below 2^53.
So weights that are whole numbers stay exact (up to 2^60 in all), and any other loses less than
`largest * max(rows, 128) / 2^59`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from treecal._typing import Array, Integers

_TOTAL = 61
_EACH = 53


class Dialect(NamedTuple):
    """The differences between DuckDB and Spark: an array of expressions, and the columns `k` and `p` of its entries.

    By `by_array` forecasts are grouped as arrays: Spark takes at most 64 columns; in DuckDB columns are faster.
    """

    array: str
    each: str
    by_array: bool


DUCKDB = Dialect("[{}]", "unnest(range({d})) AS k, unnest({p}) AS p", by_array=False)
SPARK = Dialect("array({})", "posexplode({p}) AS (k, p)", by_array=True)


def distinct_forecasts(rows: str, *, classes: int, by: int, dialect: Dialect, weighted: bool = False) -> str:
    """Return SQL for the distinct forecasts, with their rounds and outcomes, of all rows and within each group.

    The rows have the columns `p0`, `p1`, … (probabilities), `label` (the index of the outcome's class), if they are
    `weighted` `w` (a whole number: the row counts so many times), and `by0`, … The result has `k` (a class, or -1 for
    all together), `p` (the forecast, an array), `rounds`, `n` (how often each of these classes was the outcome, an
    array), `whole` (whether it is of all rows) and `by0`, …

    Two groupings make one answer: by all probabilities together, and by the class and its probability. Grouping sets
    over the columns instead would count all classes for each probability of each: quadratic in the number of classes.
    """
    keys = [f"by{i}" for i in range(by)]
    columns = [f"p{k}" for k in range(classes)]
    zeros = [f"GREATEST({name}, 0.0) + 0.0" for name in columns]  # as `without_negatives` has it; and -0.0 is 0.0
    array = dialect.array.format
    point = array(", ".join(columns))

    own = ["w"] if weighted else []

    def count(which: str) -> str:
        # No sum is larger than that of all weights, which 61 bits hold.
        return (
            f"CAST(SUM(CASE WHEN {which} THEN w ELSE 0 END) AS BIGINT)"
            if weighted
            else f"COUNT(CASE WHEN {which} THEN 1 END)"
        )

    def grouped(k: str, p: str, counted: Sequence[int | str], rows_of: Sequence[str], key: str) -> str:
        n = array(", ".join(count(f"label = {number}") for number in counted))
        whole = "GROUPING(by0) = 1" if by else "TRUE"
        found = ", ".join([k, f"{p} AS p", f"{count('TRUE')} AS rounds", f"{n} AS n", f"{whole} AS whole", *keys])
        source = f"SELECT {', '.join([*rows_of, 'label', *own, *keys])} FROM ({rows}) AS valid"
        sets = ", ".join(f"({', '.join([key, *more])})" for more in ([[], keys] if by else [[]]))
        return f"SELECT {found} FROM ({source}) AS forecasts GROUP BY GROUPING SETS ({sets})"

    together = [f"{zero} AS {name}" for zero, name in zip(zeros, columns, strict=True)]
    apart = [dialect.each.format(d=classes, p=array(", ".join(zeros)))]
    joint = grouped("-1 AS k", point, range(classes), together, point if dialect.by_array else ", ".join(columns))
    return f"{joint} UNION ALL {grouped('k', array('p'), ['k'], apart, 'k, p')}"


def indexed(rows: str, *, labels: Sequence[str | int], by: int = 0, weighted: bool = False) -> str:
    """Return SQL for the same rows with the index of the class instead of its label, NULL for other labels."""
    columns = [f"p{k}" for k in range(len(labels))]
    cases = " ".join(f"WHEN label = {_literal(label)} THEN {k}" for k, label in enumerate(labels))
    columns += [f"CASE {cases} END AS label", *["w"] * weighted, *(f"by{k}" for k in range(by))]
    return f"SELECT {', '.join(columns)} FROM ({rows}) AS all_rows"


def weighed(rows: str, *, valid: str, classes: int, by: int, scale: float) -> str:
    """Return SQL for the valid rows that count, with their weights as whole numbers."""
    columns = [*(f"p{k}" for k in range(classes)), "label", f"{whole_sql(scale)} AS w", *(f"by{k}" for k in range(by))]
    return f"SELECT {', '.join(columns)} FROM ({rows}) AS indexed WHERE {valid} AND {counts_sql(scale)}"


def _literal(label: str | int) -> str:
    return str(label) if isinstance(label, int) else "'" + label.replace("'", "''") + "'"


def scale_of(rows: int, largest: float) -> float:
    """Return the power of two, for so many weights above 0.

    Examples
    --------
    >>> scale_of(1000, 3.0) == 2.0 ** 49
    True
    """
    return math.ldexp(1.0, min(_EACH, _TOTAL - rows.bit_length()) - math.frexp(largest)[1])


def whole_weights(weights: Array, scale: float) -> Integers:
    """Return valid weights as whole numbers."""
    return np.floor(weights * scale).astype(np.int64)


def whole_sql(scale: float) -> str:
    """Return SQL for the same, of a column `w`, for DuckDB and Spark."""
    return f"CAST(FLOOR({_scaled(scale)}) AS BIGINT)"


def counts_sql(scale: float) -> str:
    """Return SQL for whether it is above 0: rows of weight 0 are read and checked, and then left out."""
    return f"{_scaled(scale)} >= 1"


def _scaled(scale: float) -> str:
    return f"w * CAST('{scale!r}' AS DOUBLE)"

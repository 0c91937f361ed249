"""The SQL of the exact audit: one query, in DuckDB's words or in Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Dialect(NamedTuple):
    """What DuckDB and Spark say differently.

    Attributes
    ----------
    array
        An array of some expressions.
    each
        The columns `k` and `p` of a row for each entry of an array.
    by_array
        Whether a forecast is grouped by as an array. Spark takes no more than 64 columns; to DuckDB columns are faster.
    """

    array: str
    each: str
    by_array: bool


DUCKDB = Dialect("[{}]", "unnest(range({d})) AS k, unnest({p}) AS p", by_array=False)
SPARK = Dialect("array({})", "posexplode({p}) AS (k, p)", by_array=True)


def distinct_forecasts(rows: str, *, classes: int, by: int, dialect: Dialect) -> str:
    """Return SQL for the distinct forecasts: how often each was made, and how often each class was the outcome.

    Two groupings make one answer: by all probabilities together, and by the class and its probability. Grouping sets
    over the columns instead would count all classes for each probability of each: a square of the number of classes.

    Parameters
    ----------
    rows
        SQL for valid rows, with the columns `p0`, `p1`, … (probabilities), `label` (the index of the outcome's class)
        and `by0`, `by1`, …
    classes
        Number of classes.
    by
        Number of `by` columns: forecasts are counted in all, and again within each of their values.
    dialect
        Whose words to use.

    Returns
    -------
    SQL with the columns `k` (a class, or -1 for all together), `p` (the forecast, an array), `rounds`, `n` (how often
    each of these classes was the outcome, an array), `whole` (whether it is of all rows), `by0`, …

    Examples
    --------
    >>> print(distinct_forecasts("SELECT * FROM log", classes=2, by=1, dialect=DUCKDB))
    SELECT -1 AS k, [p0, p1] AS p, COUNT(*) AS rounds,
    [COUNT(CASE WHEN label = 0 THEN 1 END), COUNT(CASE WHEN label = 1 THEN 1 END)] AS n, GROUPING(by0) = 1 AS whole, by0
    FROM (SELECT p0 + 0.0 AS p0, p1 + 0.0 AS p1, label, by0 FROM (SELECT * FROM log) AS valid) AS forecasts
    GROUP BY GROUPING SETS ((p0, p1), (p0, p1, by0))
    UNION ALL
    SELECT k, [p] AS p, COUNT(*) AS rounds,
    [COUNT(CASE WHEN label = k THEN 1 END)] AS n, GROUPING(by0) = 1 AS whole, by0
    FROM (SELECT unnest(range(2)) AS k, unnest([p0 + 0.0, p1 + 0.0]) AS p, label, by0
    FROM (SELECT * FROM log) AS valid) AS forecasts
    GROUP BY GROUPING SETS ((k, p), (k, p, by0))
    """
    keys = [f"by{i}" for i in range(by)]
    columns = [f"p{k}" for k in range(classes)]
    zeros = [f"{name} + 0.0" for name in columns]  # -0.0 is 0.0
    array = dialect.array.format
    point = array(", ".join(columns))

    def grouped(k: str, p: str, counted: Sequence[int | str], rows_of: Sequence[str], key: str) -> str:
        n = array(", ".join(f"COUNT(CASE WHEN label = {number} THEN 1 END)" for number in counted))
        whole = "GROUPING(by0) = 1" if by else "TRUE"
        found = ", ".join([k, f"{p} AS p", "COUNT(*) AS rounds", f"{n} AS n", f"{whole} AS whole", *keys])
        source = f"SELECT {', '.join([*rows_of, 'label', *keys])} FROM ({rows}) AS valid"
        sets = ", ".join(f"({', '.join([key, *more])})" for more in ([[], keys] if by else [[]]))
        return f"SELECT {found} FROM ({source}) AS forecasts GROUP BY GROUPING SETS ({sets})"

    together = [f"{zero} AS {name}" for zero, name in zip(zeros, columns, strict=True)]
    apart = [dialect.each.format(d=classes, p=array(", ".join(zeros)))]
    joint = grouped("-1 AS k", point, range(classes), together, point if dialect.by_array else ", ".join(columns))
    return f"{joint} UNION ALL {grouped('k', array('p'), ['k'], apart, 'k, p')}"


def indexed(rows: str, *, labels: Sequence[str | int], by: int = 0) -> str:
    """Return SQL for the same rows with the index of the class in the place of its label, NULL for other labels.

    Examples
    --------
    >>> print(indexed("SELECT * FROM log", labels=["rain", "sun"]))
    SELECT p0, p1, CASE WHEN label = 'rain' THEN 0 WHEN label = 'sun' THEN 1 END AS label
    FROM (SELECT * FROM log) AS all_rows
    """
    columns = [f"p{k}" for k in range(len(labels))]
    cases = " ".join(f"WHEN label = {_literal(label)} THEN {k}" for k, label in enumerate(labels))
    columns += [f"CASE {cases} END AS label", *(f"by{k}" for k in range(by))]
    return f"SELECT {', '.join(columns)} FROM ({rows}) AS all_rows"


def _literal(label: str | int) -> str:
    return str(label) if isinstance(label, int) else "'" + label.replace("'", "''") + "'"

"""The SQL of the exact audit: plain enough to run unchanged on DuckDB and on Spark."""

from __future__ import annotations

from collections.abc import Sequence


def forecasts(rows: str, *, classes: int, by: int = 0, good: str = "TRUE") -> str:
    """Return SQL for one row for each distinct forecast: how often it was made, and how often each class came of it.

    Parameters
    ----------
    rows
        SQL for the rows, with the columns `p0`, `p1`, … (probabilities), `label` (the index of the class that
        happened), and `by0`, `by1`, …
    classes
        Number of classes.
    by
        Number of `by` columns; forecasts are told apart within each of their values.
    good
        A condition on rows.

    Returns
    -------
    SQL with the columns `p0`, …, `rounds`, `n0`, …, `by0`, …

    Examples
    --------
    >>> print(forecasts("SELECT * FROM log", classes=2))
    SELECT p0 + 0.0 AS p0, p1 + 0.0 AS p1, COUNT(*) AS rounds, COUNT(CASE WHEN label = 0 THEN 1 END) AS n0,
    COUNT(CASE WHEN label = 1 THEN 1 END) AS n1 FROM (SELECT * FROM log) AS good_rows WHERE TRUE
    GROUP BY p0 + 0.0, p1 + 0.0
    """
    points = [f"p{k} + 0.0" for k in range(classes)]  # -0.0 is 0.0
    keys = [f"by{k}" for k in range(by)]
    columns = [f"{point} AS p{k}" for k, point in enumerate(points)] + ["COUNT(*) AS rounds"]
    columns += [f"COUNT(CASE WHEN label = {k} THEN 1 END) AS n{k}" for k in range(classes)]
    source = f"({rows}) AS good_rows WHERE {good}"
    return f"SELECT {', '.join(columns + keys)} FROM {source} GROUP BY {', '.join(points + keys)}"


def class_forecasts(rows: str, *, number: int, by: int = 0, good: str = "TRUE") -> str:
    """Return SQL for one row for each distinct probability of one class: how often it was given, and came true.

    Examples
    --------
    >>> print(class_forecasts("SELECT * FROM log", number=1))
    SELECT p1 + 0.0 AS p0, COUNT(*) AS rounds, COUNT(CASE WHEN label = 1 THEN 1 END) AS n0
    FROM (SELECT * FROM log) AS good_rows WHERE TRUE GROUP BY p1 + 0.0
    """
    point, keys = f"p{number} + 0.0", [f"by{k}" for k in range(by)]
    columns = [f"{point} AS p0", "COUNT(*) AS rounds", f"COUNT(CASE WHEN label = {number} THEN 1 END) AS n0", *keys]
    source = f"({rows}) AS good_rows WHERE {good}"
    return f"SELECT {', '.join(columns)} FROM {source} GROUP BY {', '.join([point, *keys])}"


def good_rows(*, classes: int, tolerance: float) -> str:
    """Return the condition on good rows: a known label, and probabilities from 0 that sum to 1 within `tolerance`.

    Examples
    --------
    >>> good_rows(classes=2, tolerance=1e-6)
    'label IS NOT NULL AND p0 >= 0 AND p1 >= 0 AND ABS(p0 + p1 - 1) <= 1e-06'
    """
    names = [f"p{k}" for k in range(classes)]
    # From left to right, as NumPy adds along the first axis. A sum that is NaN or NULL fulfils no condition.
    total = f"ABS({' + '.join(names)} - 1) <= {tolerance!r}"
    return " AND ".join(["label IS NOT NULL", *(f"{name} >= 0" for name in names), total])


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

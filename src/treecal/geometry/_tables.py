"""Tables and series from other libraries, whose columns or entries may be named like the classes.

The rule, for every reader of forecasts and outcomes: columns named after the set's classes (`_pairing`) are read by
name, in any order; other names are refused, and listed; integers, such as pandas gives to columns without names, say
nothing, and the position counts. Where the classes have no names there is nothing to compare, and
the position counts as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from treecal.exceptions import ForecastError, OutcomeError
from treecal.geometry._pairing import paired

Refusal = type[OutcomeError] | type[ForecastError]
_PLAIN = (np.ndarray, list, tuple)
_SHOWN = 10  # names in a message


def by_column(classes: Sequence[str] | None, table: Any, error: Refusal, what: str | None = None) -> Any:
    """Return a table of pandas, polars or Arrow with its columns in the order of the classes; anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> by_column(("rain", "sun"), pd.DataFrame({"sun": [0.75], "rain": [0.25]}), ForecastError).to_numpy()
    array([[0.25, 0.75]])
    """
    if classes is None or type(table) in _PLAIN or (names := columns(table)) is None or in_place(classes, names):
        return table
    order = _in_order(classes, names)
    if order is None:
        hint = "select and rename the columns; or pass table.to_numpy(), which is read by position."
        found = f"{what or error.what + 's'} have the columns {listed(names)}, expected {listed(classes)}."
        raise error(found, hint=hint)
    return table.select(order) if hasattr(table, "select") else table[order]


def by_entry(classes: Sequence[str] | None, series: Any, error: Refusal, round_: int) -> Any:
    """Return a series of pandas with its entries in the order of the classes; anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> by_entry(("rain", "sun"), pd.Series({"sun": 0.75, "rain": 0.25}), ForecastError, 1).tolist()
    [0.25, 0.75]
    """
    if classes is None or not is_series(series) or in_place(classes, names := list(series.index)):
        return series
    order = _in_order(classes, names)
    if order is None:
        hint = "pass series.to_numpy() to read it by position."
        raise error.at(round_, f"has entries for {listed(names)}, expected {listed(classes)}.", hint=hint)
    return series[order]


def _in_order(classes: Sequence[str], names: list[Any]) -> list[str] | None:
    """Return these names in the order of the classes they are for; None if they are not one for each."""
    if len(names) != len(classes) or not all(isinstance(name, str) for name in names):
        return None
    bare = tuple(names) if set(names) == set(classes) else paired(names, classes)
    return None if bare is None or set(bare) != set(classes) else [names[bare.index(name)] for name in classes]


def columns(table: Any) -> list[Any] | None:
    """Return the names of a table's columns; None for what is no table, or for Arrow's table of one column of lists."""
    found = getattr(table, "column_names", getattr(table, "columns", None))  # Arrow's `columns` are not their names
    names = list(found) if isinstance(found, Iterable) else None
    return None if names is None or (len(names) == 1 and hasattr(table, "column_names")) else names


def is_series(value: Any) -> bool:
    """Return whether this is a series with names or numbers for its entries, as in pandas."""
    return type(value) not in _PLAIN and hasattr(value, "dtype") and not callable(getattr(value, "index", callable))


def in_place(classes: Sequence[str], names: list[Any]) -> bool:
    """Return whether the position counts: the names are those of the classes, in order, or integers."""
    if names == list(classes):
        return True
    return all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in names)


def listed(names: Sequence[Any]) -> str:
    """Return names for a message: the first ten."""
    return ", ".join(map(str, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")

"""Columns of probabilities and the classes they are for: `p_rain` is the probability of `rain`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from treecal.exceptions import ParameterError

_NOT = re.compile(r"(^|[\W_])(no|not|non)[\W_]$", re.I)


def class_named(column: str, classes: Sequence[str]) -> str | None:
    """Return the class that a single column is named after, perhaps with a prefix: `p_rain`, `prain`, `P(y=rain`.

    A prefix is `p`, or ends with what is neither letter nor digit: `prob` is not named after `b`, nor `model10` after
    0. What is called `p_not_rain` names no class.

    Examples
    --------
    >>> [class_named(name, ["churn", "stay"]) for name in ("churn", "p_churn", "pstay", "score", "p_not_churn")]
    ['churn', 'churn', 'stay', None, None]
    """
    for name in sorted(classes, key=len, reverse=True):
        prefix = column.removesuffix(name)
        if column.endswith(name) and (prefix.lower() in ("", "p") or not prefix[-1].isalnum()):
            return None if _NOT.search(prefix) else name
    return None


@lru_cache(1000)  # it is asked for every row
def second_class(column: str, classes: tuple[str, ...]) -> None:
    """Raise an error if a column that is to hold the probability of the second of two classes is named after the first.

    Examples
    --------
    >>> second_class("p_stay", ("churn", "stay"))
    >>> second_class("p_churn", ("churn", "stay"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: p_churn is named after churn, the first of the classes churn, stay, ...
    <BLANKLINE>
    Hint: name the classes in the order stay, churn; or rename the column.
    """
    first, second = classes
    if class_named(column, classes) == first:
        raise ParameterError(
            f"{column} is named after {first}, the first of the classes {first}, {second}, but a single column is the "
            "probability of the second.",
            hint=f"name the classes in the order {second}, {first}; or rename the column.",
        )


def columns_of(classes: Sequence[str], there: Collection[str]) -> list[tuple[str, ...]]:
    """Return the columns named like the classes; if there are none, all sets of columns that are with a common prefix.

    A prefix does not end with a digit where a class begins with one: `x10` and `x11` are not for the classes 0 and 1.

    Examples
    --------
    >>> columns_of(["rain", "sun"], ["p_sun", "day", "p_rain"])
    [('p_rain', 'p_sun')]
    >>> columns_of(["rain", "sun"], ["p_sun", "rain", "sun"]), columns_of(["0", "1"], ["x10", "x11", "p0"])
    ([('rain', 'sun')], [])
    """
    if not classes or all(name in there for name in classes):
        return [tuple(classes)] if classes else []
    prefixes = [column.removesuffix(classes[0]) for column in there if column.endswith(classes[0])]
    clear = [
        prefix for prefix in prefixes if not (prefix[-1:].isdigit() and any(name[:1].isdigit() for name in classes))
    ]
    found = (tuple(prefix + name for name in classes) for prefix in clear)
    return [columns for columns in found if all(name in there for name in columns)]

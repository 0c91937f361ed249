"""Columns of probabilities and the classes they are for: `p_rain` is the probability of `rain`."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def classes_of(columns: Sequence[str], labels: Collection[str]) -> tuple[str, ...] | None:
    """Return the columns' names without a common prefix, if every label is among them.

    Examples
    --------
    >>> classes_of(["p_sun", "p_rain"], ["rain", "sun"]), classes_of(["a", "b"], ["rain", "sun"])
    (('sun', 'rain'), None)
    """
    # Classes may have a common prefix, too: then only a part of the columns' prefix is removed.
    for start in range(min(map(len, columns), default=0)):
        names = tuple(column[start:] for column in columns)
        if set(labels) <= set(names):
            return names
        if len({name[0] for name in names}) > 1:
            break
    return None


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

"""Which column holds the probability of which class, by their names: the one rule of every entrance.

A column is named after the class that its name holds as words of its own, in any case and with anything around
them: `P(yes)`, `yes_prob`, `P_YES`, `yes%` and `pYes` are all named after `yes`, `p_not_yes` after no class. Words end
at signs, between letters and digits, and where a capital follows a small letter; `p`, `prob`, `proba` and `probability`
are words wherever a name begins or ends with them. `1.0` is 1, and false and true are 0 and 1. Where no column is named
after a class, what all classes have in common is left out: `virginica` is named after `Iris-virginica`.

The rule for tables and series of other libraries, for every reader of forecasts and outcomes: columns named after the
set's classes are read by name, in any order; other names are refused, and listed; integers, such as pandas gives to
columns without names, say nothing, and the position counts. Where the classes have no names there is nothing to
compare, and the position counts as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from treecal.exceptions import ForecastError, OutcomeError, ParameterError

_DECORATION = "p", "prob", "proba", "probability"
_SAME = {"0": "false", "1": "true", "false": "0", "true": "1"}
_COUNTED = re.compile(r"\d+(\.0+)?|false|true", re.I)
_TRUTH = re.compile(r"[01](\.0+)?|false|true", re.I)
_NOT = re.compile(r"(^|[\W_])(no|not|non)[\W_]*$", re.I)
_SHOWN = 10  # names in a message


class Named(NamedTuple):
    """A class in the name of a column, and what stands before and after it, in small letters."""

    name: str
    before: str
    after: str

    def inside(self, other: Named) -> bool:
        """Return whether this is a part of a longer name that stands there: `yes` of `not yes`."""
        longer = len(self.before) + len(self.after) > len(other.before) + len(other.after)
        return longer and self.before.startswith(other.before) and self.after.endswith(other.after)


def paired(columns: Sequence[str], labels: Collection[str]) -> tuple[str, ...] | None:
    """Return the classes of these columns, by their names; None unless each label has its own column.

    Where columns differ in one place only, they may also name classes that are not among the labels.

    Examples
    --------
    >>> paired(["P(yes)", "P(no)"], ["no", "yes"]), paired(["SUN_prob", "rain_prob", "fog_prob"], ["rain", "sun"])
    (('yes', 'no'), ('sun', 'rain', 'fog'))
    >>> paired(["a", "b"], ["no", "yes"]), paired(["p_yes", "p_maybe_yes"], ["no", "yes"])
    (None, None)
    """
    if len(labels) > len(columns):
        return None
    found = _found(tuple(columns), tuple(sorted(labels)))
    frames = dict.fromkeys(each for names in found for each in names)
    framed = {names for frame in frames if (names := _framed(columns, frame, labels))}
    if len(framed) == 1:
        return framed.pop()
    sole = [names[0].name for names in found if len({each.name for each in names}) == 1]
    if len(sole) == len(columns) == len(labels) == len({*sole}):
        return tuple(sole)
    return None if any(found) else _without_start(columns, labels)


def _without_start(columns: Sequence[str], labels: Collection[str]) -> tuple[str, ...] | None:
    """Return the columns' names without their common beginning, if every label is then among them."""
    for start in range(min(map(len, columns), default=0)):
        names = tuple(column[start:] for column in columns)
        if set(labels) <= set(names):
            return names
        if len({name[0] for name in names}) > 1:
            break
    return None


def paired_single(column: str, classes: Sequence[str]) -> str | None:
    """Return the class that a single column is named after.

    Examples
    --------
    >>> names = ("churn", "p_churn", "pstay", "STAY%", "score", "p_not_churn")
    >>> [paired_single(name, ["churn", "stay"]) for name in names]
    ['churn', 'churn', 'stay', 'stay', None, None]
    """
    (found,) = _found((column,), tuple(classes))
    names = {each.name for each in found}
    if len(names) > 1:
        raise ParameterError(
            f"{column} is named after {_or(names)}: it is unclear whose probability it is.",
            hint="name the classes, that of the column second: classes=[...], in the shell --classes.",
        )
    return next(iter(names), None)


@lru_cache(1000)  # it is asked for every row
def check_pairs(
    columns: tuple[str, ...], classes: tuple[str, ...], *, known: bool = True, remedy: str | None = None
) -> None:
    """Raise an error if columns are named after other classes than those in their places.

    A single column is the probability of the second of two classes. Of classes that are `known`, since they were named
    in this order, a column may also hold the name of another; and numbers may count columns from 1 and classes from 0:
    where not all columns are named after classes that are numbers, their order counts.

    Examples
    --------
    >>> check_pairs(("yes_prob", "no_prob"), ("yes", "no"))
    >>> check_pairs(("yes_prob", "no_prob"), ("no", "yes"))
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: yes_prob is named after yes, but stands for no: yes_prob of no, no_prob of yes.
    <BLANKLINE>
    Hint: classes=['yes', 'no'], in the shell --classes yes,no; or rename the columns.
    """
    if len(columns) == 1 and len(classes) == 2:
        (column,) = columns
        first, second = classes
        if paired_single(column, classes) == first:
            raise ParameterError(
                f"{column} is named after {first}, the first of the classes {first}, {second}, but a single column is "
                "the probability of the second.",
                hint=f"name the classes in the order {second}, {first}; or rename the column.",
            )
    if len(columns) != len(classes) or len(columns) == 1:
        return
    names = paired(columns, classes)
    if names == classes or (known and names is None and all(map(_COUNTED.fullmatch, classes))):
        return
    found = [{each.name for each in names} for names in _found(columns, classes)]
    for column, own, other in zip(
        columns, classes, found if names is None else [{name} for name in names], strict=True
    ):
        if other and other != {own} and not (known and own in other):
            order = list(classes if names is None else names)
            first = "in the order of the columns: " if names is None else ""
            raise ParameterError(
                f"{column} is named after {_or(other)}, but stands for {own}: {pairing(columns, classes)}.",
                hint=remedy
                or f"{first}classes={order}, in the shell --classes {','.join(order)}; or rename the columns.",
            )


def check_hot(columns: Sequence[str], outcomes: Sequence[str]) -> None:
    """Raise an error if columns of probabilities, and columns with a 1 for each class, are not in one order.

    Examples
    --------
    >>> check_hot(["p_yes", "p_no"], ["is_yes", "is_no"])
    >>> check_hot(["p_yes", "p_no"], ["is_no", "is_yes"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: p_yes is named after yes, but stands for no: p_yes of no, p_no of yes.
    <BLANKLINE>
    Hint: list the columns of forecast and outcome in one order.
    """
    check_pairs(tuple(columns), tuple(_bare(outcomes)), remedy="list the columns of forecast and outcome in one order.")


def _common_start(names: Sequence[str]) -> str:
    """Return what all names begin with, up to the end of a word."""
    least = min(names)
    most = max(names)
    same = least[: next((k for k, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1]), len(least))]
    return same[: max(k for k in range(len(same) + 1) if all(k in _column_cuts(name) for name in names))]


def framed_columns(classes: Sequence[str], there: Collection[str]) -> list[tuple[str, ...]]:
    """Return the columns named like the classes; if there are none, all sets of columns that are, but for decoration.

    Examples
    --------
    >>> framed_columns(["rain", "sun"], ["p_sun", "day", "p_rain"]), framed_columns(["no", "yes"], ["P(YES)", "P(NO)"])
    ([('p_rain', 'p_sun')], [('P(NO)', 'P(YES)')])
    >>> framed_columns(["rain", "sun"], ["p_sun", "rain", "sun"]), framed_columns(["0", "1"], ["x10", "x11", "p0"])
    ([('rain', 'sun')], [])
    """
    return list(_sets_of_columns(tuple(classes), tuple(there)))


@lru_cache(100)
def _sets_of_columns(classes: tuple[str, ...], there: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    if not classes or set(classes) <= set(there):
        return (classes,) if classes else ()
    frames: dict[tuple[str, str], dict[str, list[str]]] = {}
    for column, found in zip(there, _found(there, classes, inner=True), strict=True):
        for name, before, after in found:
            frames.setdefault((before, after), {}).setdefault(name, []).append(column)
    full = [names for names in frames.values() if len(names) == len(classes)]
    return tuple(tuple(names[name][0] for name in classes) for names in full if all(map(_one, names.values())))


def pairing(columns: Sequence[str], classes: Sequence[str]) -> str:
    """Return which column is taken for which class, in words.

    Examples
    --------
    >>> pairing(["P(yes)", "P(no)"], ["yes", "no"])
    'P(yes) of yes, P(no) of no'
    """
    pairs = [f"{column} of {name}" for column, name in zip(columns, classes, strict=False)]
    return listed(pairs)


def _framed(columns: Sequence[str], frame: Named, labels: Collection[str]) -> tuple[str, ...] | None:
    """Return the classes of columns that are the same before and after them, if all labels are among them."""
    before = frame.before
    after = frame.after
    names = []
    for column in columns:
        if not (column.lower().startswith(before) and column.lower().endswith(after)):
            return None
        bare = column[len(before) : len(column) - len(after)]
        if not bare or len(before) + len(after) >= len(column):
            return None
        own = {each.name for each in _found((column,), tuple(sorted(labels)), inner=True)[0] if each[1:] == frame[1:]}
        names.append(own.pop() if len(own) == 1 else bare)
    return tuple(names) if set(labels) <= set(names) and len({*names}) == len(names) else None


@lru_cache(1000)
def _found(columns: tuple[str, ...], classes: tuple[str, ...], inner: bool = False) -> tuple[tuple[Named, ...], ...]:
    """Return the classes in each column's name; those inside other classes' names, and negated ones, only if asked."""
    found = _matches(columns, {name: name for name in classes}, inner)
    if any(found) or len(classes) < 2:
        return found
    return _matches(columns, dict(zip(_bare(classes), classes, strict=True)), inner)


def _matches(columns: Sequence[str], classes: Mapping[str, str], inner: bool) -> tuple[tuple[Named, ...], ...]:
    """Return the classes in each column's name, where they are spelled as the keys."""
    patterns = {classes[spelled]: pattern for spelled, pattern in _patterns(list(classes)).items()}
    found = []
    for column in columns:
        cuts = _column_cuts(column)
        own = [
            Named(name, column[: match.start()].lower(), column[match.end(1) :].lower())
            for name, pattern in patterns.items()
            for match in pattern.finditer(column)
            if match.start() in cuts and match.end(1) in cuts
        ]
        if not inner:
            own = [each for each in own if not any(each.inside(other) for other in own)]
            own = [each for each in own if not _NOT.search(each.before)]
        found.append(tuple(own))
    return tuple(found)


def _patterns(names: Sequence[str]) -> dict[str, re.Pattern[str]]:
    """Return what finds each name in that of a column."""
    words = {name: _words(name) for name in names}
    keys = ["".join(each).lower() for each in words.values()]
    truth = len(names) == 2 and all(map(_TRUTH.fullmatch, names))
    patterns = {}
    for name, each in words.items():
        key = "".join(each).lower()
        exact = not key or keys.count(key) > 1 or (key.isdigit() and key != name)  # as 7.5, or =1+1
        spellings = [re.escape(name) if exact else r"[\W_]*".join(map(re.escape, each))]
        whole = re.sub(r"\.0+$", "", name)
        same = _SAME.get(whole.lower(), name) if truth else name
        spellings += [re.escape(other) for other in (whole, same) if other not in names]
        patterns[name] = re.compile(f"(?=({'|'.join(spellings)}))", re.NOFLAG if exact and whole == name else re.I)
    return patterns


def _bare(classes: Sequence[str]) -> list[str]:
    """Return the classes' names without the words that all of them begin or end with; as they are if one is nothing."""
    start = len(_common_start(classes))
    end = len(_common_start([name[:start:-1] for name in classes]))
    bare = [name[start : len(name) - end] for name in classes]
    return bare if all(bare) and len({*bare}) == len(bare) else list(classes)


def _words(name: str) -> list[str]:
    """Return the words of a name."""
    cuts = sorted(_cuts(name))
    parts = [name[begin:end] for begin, end in pairwise(cuts)]
    return [part for part in parts if part.isalnum()]


def _cuts(name: str) -> set[int]:
    """Return where words may begin or end."""

    def between(before: str, after: str) -> bool:
        inside = before.isalnum() and after.isalnum() and before.isdigit() == after.isdigit()
        return not inside or (before.islower() and after.isupper())

    return {k for k in range(1, len(name)) if between(name[k - 1], name[k])} | {0, len(name)}


def _column_cuts(name: str) -> set[int]:
    """Return where words may begin or end in the name of a column."""
    small = name.lower()
    starts = {len(word) for word in _DECORATION if small.startswith(word)}
    ends = {len(name) - len(word) for word in _DECORATION[1:] if small.endswith(word)}
    return _cuts(name) | starts | ends


def _one(columns: list[str]) -> bool:
    return len(columns) == 1


def _or(names: Collection[str]) -> str:
    return " or ".join(sorted(names)) or "none"


Refusal = type[OutcomeError] | type[ForecastError]
_PLAIN = (np.ndarray, list, tuple)


def by_column(classes: Sequence[str] | None, table: Any, error: Refusal) -> Any:
    """Return a table of pandas, polars or Arrow with its columns in the order of the classes; anything else as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> by_column(("rain", "sun"), pd.DataFrame({"sun": [0.75], "rain": [0.25]}), ForecastError).to_numpy()
    array([[0.25, 0.75]])
    """
    if classes is None or type(table) in _PLAIN or (names := columns(table)) is None or in_place(classes, names):
        return table
    order = order_of(classes, names)
    if order is None:
        hint = "select and rename the columns; or pass table.to_numpy(), which is read by position."
        found = f"{error.what}s have the columns {listed(names)}, expected {listed(classes)}."
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
    order = order_of(classes, names)
    if order is None:
        hint = "pass series.to_numpy() to read it by position."
        raise error.at(round_, f"has entries for {listed(names)}, expected {listed(classes)}.", hint=hint)
    return series[order]


def order_of(classes: Sequence[str], names: list[Any]) -> list[str] | None:
    """Return these names in the order of the classes they are for; None if they are not one for each.

    Examples
    --------
    >>> order_of(["rain", "sun"], ["P(sun)", "P(rain)"]), order_of(["rain", "sun"], ["P(sun)", "P(snow)"])
    (['P(rain)', 'P(sun)'], None)
    """
    if len(names) != len(classes) or not all(isinstance(name, str) for name in names):
        return None
    bare = tuple(names) if set(names) == set(classes) else paired(names, classes)
    return None if bare is None or set(bare) != set(classes) else [names[bare.index(name)] for name in classes]


def columns(table: Any) -> list[Any] | None:
    """Return the names of a table's columns; None for anything else, and for Arrow's table of one column of lists."""
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

"""The outcome and the forecast in a row, or what is wrong with it.

Streams are decoded here row by row. Files are read in bulk by SQL that accepts the same cells (`_columns`), and only
the rows that it leaves out are decoded here, to explain why.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal._validate import HEAVIEST
from treecal.exceptions import FileError, OutcomeError, Reason, TreeCalError
from treecal.geometry import (
    TOLERANCE,
    ConvexSet,
    Simplex,
    check_pairs,
    framed_columns,
    order_of,
    rounding,
    valid_forecasts,
    without_negatives,
    written_to,
)
from treecal.io._duckdb import library

_SHORT = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Stands for bytes that are not UTF-8."""


def class_labels(space: ConvexSet) -> tuple[str, ...]:
    """Return the labels of the classes of a simplex, their names or their numbers; other sets have none."""
    if not isinstance(space, Simplex):
        return ()
    return tuple(map(str, range(space.dim))) if space.classes is None else space.classes


def listed(names: Sequence[str]) -> str:
    """Return the first ten names, for a message."""
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")


def _both(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) == 2 else listed(names)


def check_columns(source: str, there: Sequence[str], wanted: Sequence[str], *, remedy: str | None = None) -> None:
    """Raise an error if a table lacks a column; if none is named like it, the hint is the remedy."""
    for name in wanted:
        if name in there:
            continue
        close = [column for column in there if column.lower() == name.lower()]
        close += difflib.get_close_matches(name, there, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else None
        if hint is None and any(re.fullmatch(r"[\d.eE+-]+", column) for column in there):
            hint = "the first line seems to be a row, expected the names of the columns."
        raise FileError(f"{source} has no column {name!r}. It has {listed(there)}.", hint=hint or remedy)


def one_spelling(labels: Collection[str], classes: Collection[str] = ()) -> dict[str, str]:
    """Return what spellings of True and False are read as, where labels are written in several ways: Excel has TRUE.

    The classes that were given have their names; without any, labels that are mixed become True and False.

    Examples
    --------
    >>> one_spelling(["TRUE", "True", "False"])["FALSE"], one_spelling(["TRUE", "FALSE"])
    ('False', {})
    >>> one_spelling([], ["no", "TRUE"])
    {'true': 'TRUE', 'True': 'TRUE'}
    """
    spellings = [(word, word.capitalize(), word.upper()) for word in ("true", "false")]
    mixed = any(len({*each} & {*labels}) > 1 for each in spellings)
    found: dict[str, str] = {}
    for each in spellings:
        named = [name for name in each if name in classes] or [each[1]] * (mixed and not classes)
        if len(named) == 1:
            found |= {spelling: named[0] for spelling in each if spelling != named[0]}
    return found


NUMBER = r"^\s*-?\d{1,18}\s*$"
"""The texts that are sequence numbers."""
_TYPES = ("varchar", "string", "json", "tinyint", "smallint", "int", "integer", "bigint")


class Keys(NamedTuple):
    """The column of keys, any text, and that of sequence numbers, whole ones, which order the rows of a key."""

    key: str
    seq: str

    def check(self, source: str, types: dict[str, str]) -> None:
        """Raise unless the cells of both columns have one text each, in which DuckDB and Spark agree."""
        if self.key == self.seq:
            raise FileError(f"{self.key!r} is the column of keys and of their numbers, expected two columns.")
        for name in self:
            if types[name].lower() not in _TYPES:
                raise FileError(
                    f"column {name!r} of {source} holds {types[name]} values, expected text or whole numbers."
                )

    def read(self, cells: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return keys as text and numbers as integers, and which rows have both."""
        arrow = library("pyarrow")
        compute = library("pyarrow.compute")
        key, text = (cells[name].cast("string") for name in self)
        good = compute.match_substring_regex(text, NUMBER)
        seq = compute.if_else(good, compute.utf8_trim_whitespace(text), arrow.scalar(None, "string")).cast("int64")
        valid = compute.and_(key.is_valid(), seq.is_valid())
        return {self.key: key, self.seq: seq}, np.asarray(valid.to_numpy(zero_copy_only=False))

    def complaint(self, row: dict[str, Any]) -> str | None:
        """Return what is wrong with the key or the number of a row, if anything."""
        key, seq = (row.get(name) for name in self)
        if key in (None, ""):
            return f"{self.key} is missing, expected the key of a stream."
        if seq in (None, "") or not re.match(NUMBER, str(seq)):
            found = "missing" if seq in (None, "") else repr(seq)
            return f"{self.seq} is {found}, expected a whole number, which orders the rows of {self.key} {key!r}."
        return None


class Decoder:
    """Reads the outcome and the probabilities in a row.

    Parameters
    ----------
    space
        The set outcomes lie in; classes of a simplex are read by name, or by number where they have no names.
    outcome
        Columns of the outcome: one of labels or lists, or one per coordinate. By default "outcome", or the only column;
        where outcomes are not classes, all columns.
    forecast
        Columns of the probabilities: one of lists, or one per class; for two classes, the second is enough. By default
        "forecast", or the columns named like the classes, also with a common prefix (`p_rain`, `p_sun`).
    one_hot
        Whether several columns of the outcome must hold one 1, otherwise 0.
    tolerance
        To what probabilities were rounded: of d classes they may sum to 1 within d/2 times as much, at least it.
    weight
        Column of the weights of rows.
    keys
        Columns of the key of each row, and of its number.
    decimal
        The decimal mark of numbers in text.

    Examples
    --------
    >>> decoder = Decoder(Simplex(classes=["rain", "sun"]))
    >>> decoder.outcome({"day": 1, "outcome": "sun"}), decoder.outcome("rain"), decoder.outcome([0.5, 0.5])
    (array([0., 1.]), array([1., 0.]), array([0.5, 0.5]))
    >>> decoder.outcome({"outcome": "hail"})
    Traceback (most recent call last):
    ...
    treecal.exceptions.OutcomeError: outcome is 'hail', expected one of rain, sun.
    """

    def __init__(
        self,
        space: ConvexSet,
        *,
        outcome: Sequence[str] = (),
        forecast: Sequence[str] = (),
        one_hot: bool = False,
        tolerance: float = TOLERANCE,
        weight: str | None = None,
        keys: Keys | None = None,
        decimal: str = ".",
    ) -> None:
        self.space = space
        self._decimal = decimal
        self.tolerance = tolerance
        self.columns = (*outcome, *forecast, *([] if weight is None else [weight]), *(keys or ()))
        self._weight = weight
        self._keys = keys
        self._outcome = tuple(outcome)
        self._forecast = tuple(forecast)
        self._one_hot = one_hot
        self._labels = class_labels(space)
        self._index = {label: k for k, label in enumerate(self._labels)}
        spelled = one_spelling((), self._labels)
        self._index |= {text: self._index[name] for text, name in spelled.items() if text not in self._index}
        self._read: tuple[str, ...] = ()
        if len(self._forecast) > 1:
            check_pairs(self._forecast, self._labels)

    def check(self, source: str, there: Sequence[str]) -> None:
        """Raise an error if a table lacks the columns to read."""
        check_columns(source, there, self.columns)
        if not self._outcome and len(there) == 1 and there[0] in self._labels:
            raise FileError(
                f"{source} begins with {there[0]}, a class, expected the names of the columns.",
                hint="write outcome above it; or read it from standard input, with < in front of its name.",
            )
        self.outcome_columns(there, source=source)

    def outcome_columns(self, there: Sequence[str], *, source: str = "it") -> tuple[str, ...]:
        """Return the columns of the outcome; unless they were given, they are chosen the first time."""
        if self._outcome or not there:
            return self._outcome or ("outcome",)
        if "outcome" not in there and len(there) > 1 and self._labels:
            raise FileError(
                f"{source} has the columns {listed(there)}, none named outcome.", hint="choose with --outcome."
            )
        self._outcome = ("outcome",) if "outcome" in there else tuple(there)
        return self._outcome

    def forecast_columns(self, there: Collection[str]) -> tuple[str, ...]:
        """Return the columns of the probabilities, some of which may be missing; none if nothing looks like them."""
        if self._forecast:
            return self._forecast
        if "forecast" in there:
            return ("forecast",)
        found = framed_columns(self._labels, there)
        if len(found) > 1:
            sets = " and ".join(listed(columns) for columns in found)
            raise FileError(f"{sets} may all be the probabilities.", hint="choose with --forecast.")
        if found:
            return found[0]
        return self._labels if any(label in there for label in self._labels) else ()

    @property
    def pairs(self) -> dict[str, str]:
        """The column that was read as the probability of each class; empty before the first row."""
        return dict(zip(self._labels, self._read, strict=False))

    def sought(self) -> str:
        """Return which columns of probabilities are looked for, for a message."""
        if self._forecast:
            return listed(self._forecast)
        if not self._labels:
            return "forecast"
        return f"forecast, or {_both(self._labels)}, or {_both([f'p_{label}' for label in self._labels])}"

    def complaint(self, row: Any) -> Reason | None:
        """Return what is wrong with a row, if anything."""
        try:
            if self._forecast:
                self.forecast(row)
            self.outcome(row)
            if self._weight is not None:
                self.weight(row)
        except TreeCalError as error:
            return error
        return None if self._keys is None else self._keys.complaint(row)

    def weight(self, row: dict[str, Any]) -> float:
        """Return the weight of a row."""
        assert self._weight is not None
        name, value = _cell(row, (self._weight,))
        number = _number(name, value, self._decimal)
        if not (number == 0 or 1 / HEAVIEST <= number <= HEAVIEST):
            raise _refusal(name, value, f"a weight: 0, or from {1 / HEAVIEST:g} to {HEAVIEST:g}")
        return number

    def outcome(self, row: Any) -> Array:
        """Return the outcome in a row, which maps columns to values, or is itself the outcome."""
        columns = self.outcome_columns(list(row)) if isinstance(row, dict) else ()
        name, value = _cell(row, columns)
        if self._labels and len(columns) < 2 and not self._is_vector(value):
            return self._vertex(name, value)
        y = np.array(list(self._numbers(name, value, columns).values()))
        if not np.isfinite(y).all():
            raise OutcomeError(f"the outcome holds {y[~np.isfinite(y)][0]}, expected finite numbers.")
        if self._one_hot and not (y.sum() == 1 and y.max() == 1 and y.min() == 0):
            raise OutcomeError(f"the outcome is {y.tolist()}, expected one 1 among {listed(columns)}, otherwise 0.")
        if not self.space.admits(y):
            raise OutcomeError(f"the outcome lies outside {self.space!r}: {self.space.complaint(y)}.")
        return y

    def forecast(self, row: dict[str, Any]) -> Array:
        """Return the forecast in a row: probabilities, or a point where outcomes are not classes."""
        columns = self.forecast_columns(row)
        name, value = _cell(row, columns)
        if len(self._labels) == 2 and len(columns) == 1 and not self._is_vector(value):
            check_pairs((name,), self._labels)
            second = _number(name, value, self._decimal)
            found = {f"1 - {name}": 1 - second, name: second}
        else:
            found = self._numbers(name, value, columns)
        p = np.array(list(found.values()))
        if not self._labels:
            return p
        self._read = tuple(found)
        within = rounding(self.tolerance, len(p))
        for entry, value in reversed(found.items()):  # p before 1 - p
            if not -within <= value <= 1 + within:
                percent = "if it is in percent, divide by 100." if 1 < value <= 100 else None
                raise OutcomeError(f"{entry} is {value:g}, expected a probability from 0 to 1.", hint=percent)
        total = np.add.accumulate(p)[-1]  # from left to right, as SQL adds
        if not 1 - within <= total <= 1 + within:
            raise OutcomeError(
                f"the probabilities sum to {total:.10g}, expected 1 within {within:g}.",
                hint=f"if they were rounded, {self._remedy(abs(total - 1), len(p))}.",
            )
        if not valid_forecasts(p[:, None], self.tolerance).all():
            raise OutcomeError(f"the negative entries sum to {p[p < 0].sum():g}, expected 0 within {within:g}.")
        return without_negatives(self.space, p)

    def look_at(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Take for the tolerance what the decimals of the probabilities in these columns say."""
        cells = [columns[name] for name in self.forecast_columns(columns) if name in columns]
        if self._labels and cells:
            self.tolerance = written_to(np.concatenate([_numbers(each, self._decimal) for each in cells]))

    def forecasts_of(self, columns: Mapping[str, Sequence[Any]], there: Sequence[str]) -> tuple[Array, Any]:
        """Return the forecasts in these columns, `(n, d)`, and which of them `forecast` accepts as they stand.

        Of others it is not said here what is wrong with them, and rarer spellings, such as texts of lists, are among
        them.
        """
        found = [columns[name] for name in there]
        if not self._labels or len(found) not in (1, len(self._labels)):
            rows = len(found[0])
            return np.zeros((rows, self.space.dim)), np.zeros(rows, bool)
        if len(found) == 1 and all(type(cell) is list and len(cell) == len(self._labels) for cell in found[0]):
            found = list(zip(*found[0], strict=True))
        elif len(found) == 1 and len(self._labels) == 2:
            check_pairs(there, self._labels)
        p = np.array([_numbers(cells, self._decimal) for cells in found])
        names = there
        if len(p) == 1 and len(self._labels) == 2:
            p = np.stack([1 - p[0], p[0]])
            names = (f"1 - {there[0]}", there[0])
        if len(p) != len(self._labels):
            return np.zeros((p.shape[1], self.space.dim)), np.zeros(p.shape[1], bool)
        if not self._read:
            self._read = tuple(names) if len(names) == len(p) else tuple(f"{there[0]}[{k}]" for k in range(len(p)))
        within = rounding(self.tolerance, len(p))
        with np.errstate(invalid="ignore"):
            good = ((p >= -within) & (p <= 1 + within)).all(axis=0) & (np.add.accumulate(p)[-1] <= 1 + within)
        return without_negatives(self.space, p.T), good & valid_forecasts(p, self.tolerance)

    def classes_of(self, cells: Sequence[Any]) -> Any:
        """Return the class of each cell, -1 where there is none, or another kind of outcome."""
        if {*map(type, cells)} <= {str}:
            return np.array([self._index.get(cell, -1) for cell in cells], np.int64)
        return np.array([-1 if self._is_vector(cell) else self._class(cell) for cell in cells], np.int64)

    def _remedy(self, off: float, dim: int) -> str:
        """Return how to read probabilities whose sum is so far from 1: with the least power of ten that will do."""
        if self.tolerance == TOLERANCE:
            return "normalise them"
        for power in range(8, 1, -1):
            if rounding(float(f"1e-{power}"), dim) > off * (1 + 1e-6):
                return f"a tolerance of 1e-{power} accepts them, in the shell --tolerance 1e-{power}"
        return "normalise them"

    def _is_vector(self, value: Any) -> bool:
        return isinstance(value, list | dict) or (
            isinstance(value, str) and value.startswith("[") and value not in self._index
        )

    def _vertex(self, name: str, value: Any) -> Array:
        at = self._class(value)
        if at < 0:
            skip = (
                'on_error="skip", in the shell --on-error skip, leaves out rows that have no outcome yet. An audit of '
                "rows that were drawn to be labelled takes their probability=, in the shell --probability."
            )
            hint = skip if value is None or value != value else None  # NaN
            raise _refusal(name, value, f"one of {listed(self._labels)}", hint=hint)
        outcome = np.zeros(self.space.dim)
        outcome[at] = 1.0
        return outcome

    def _class(self, value: Any) -> int:
        """Return the class of this label; -1 if there is none."""
        if value is None:
            return -1
        # Integers become floats in a column where one is missing.
        whole = isinstance(value, bool) or (isinstance(value, float | Decimal) and value % 1 == 0)
        return self._index.get(str(int(value) if whole else value), -1)

    def _numbers(self, name: str, value: Any, columns: Sequence[str]) -> dict[str, float]:
        """Return the numbers of a vector, by name."""
        dim = self.space.dim
        if isinstance(value, dict) and self._labels:
            order = order_of(self._labels, list(value))
            if order is None:
                raise OutcomeError(f"{name} has entries for {listed(list(value))}, expected {listed(self._labels)}.")
            columns = [f"{name}.{key}" for key in order]
            value = [value[key] for key in order]
        elif isinstance(value, str) and value.startswith("["):
            value = [entry.strip(" '\"") for entry in value.strip("[] ").split(",")]
        elif dim == 1 and not isinstance(value, list):
            value = [value]
        if not isinstance(value, list) or len(value) != dim:
            raise _refusal(name, value, f"a list of {dim} numbers" if len(columns) < 2 else f"{dim} columns")
        names = columns if len(columns) == dim else [f"{name}[{k}]" for k in range(dim)]
        return {entry: _number(entry, number, self._decimal) for entry, number in zip(names, value, strict=True)}


def _cell(row: Any, columns: Sequence[str]) -> tuple[str, Any]:
    """Return the name and the value of what a row holds in these columns; or the row itself."""
    if not isinstance(row, dict):
        return "it", row
    found = [row.get(name) for name in columns]
    if any(isinstance(value, str) and not value.isascii() and _SURROGATE.search(value) for value in found):
        raise OutcomeError("it is not text in UTF-8.")
    return (columns[0], found[0]) if len(columns) == 1 else ("it", found)


def _number(name: str, value: Any, decimal: str) -> float:
    """Return a number, also from text, as SQL reads it."""
    text = value if isinstance(value, str) else ""
    plain = text.isascii() and "_" not in text and not (decimal == "," and "." in text)
    if decimal == "," and text:
        value = text.replace(",", ".")
    if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool) and plain:
        try:
            return float(value)
        except OverflowError:
            return np.inf
        except ValueError:
            pass
    hint = "write decimals with a point: 0.5; in the shell --decimal , reads commas." if "," in text else None
    if decimal == ",":
        hint = "decimals have a comma here: 0,5." if "." in text else None
        value = text or value
    if text.rstrip().endswith("%"):
        hint = "probabilities are numbers from 0 to 1: divide by 100."
    raise _refusal(name, value, "a number", hint=hint)


def _numbers(cells: Sequence[Any], decimal: str) -> Array:
    """Return the numbers in cells, NaN where there is none."""
    kinds = {*map(type, cells)}
    if kinds <= {float, int}:
        with suppress(OverflowError):
            return np.array(cells, np.float64)
    if kinds <= {str} and decimal == ".":
        text = "".join(cells)
        if text.isascii() and "_" not in text:
            with suppress(ValueError):
                return np.array([float(cell) for cell in cells])
    return np.array([_number_or_none(cell, decimal) for cell in cells])


def _number_or_none(cell: Any, decimal: str) -> float:
    try:
        return _number("", cell, decimal)
    except OutcomeError:
        return np.nan


def _refusal(name: str, value: Any, expected: str, *, hint: str | None = None) -> OutcomeError:
    if value is None:
        return OutcomeError(f"{name} is missing, expected {expected}.", hint=hint)
    text = repr(value)
    shown = text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
    return OutcomeError(f"{name} is {shown}, expected {expected}.", hint=hint)

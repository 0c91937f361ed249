"""A log of NumPy arrays in memory, audited without any other library: its digits are those of the log in a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers
from treecal.auditing._exact import JOINT, WHOLE, ErrorSums
from treecal.auditing._sql import scale_of, whole_weights
from treecal.exceptions import FileError, ForecastError, OutcomeError, ParameterError
from treecal.geometry import (
    SAMPLE,
    Simplex,
    by_column,
    check_hot,
    check_pairs,
    columns as columns_of,
    is_series,
    paired,
    valid_forecasts,
    written_to,
)
from treecal.io import (
    Chunk,
    Decoder,
    Label,
    OnError,
    Place,
    Problems,
    arrays_of,
    as_columns,
    check_columns,
    check_tolerance,
    given_classes,
    in_order,
    one_spelling,
    valid_weights,
)

_CELLS = 1 << 22
_LEAST = 1 << 10
_ROWS = 122_880  # of a chunk
_SPAN = 1 << 62
_LARGEST = 1 << 63
_UNITS = ("D", "s", "ms", "us", "ns")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


class _Labels(NamedTuple):
    """A column of labels: the place of each among those that differ, -1 where there is none; and all that differ."""

    places: Integers
    values: list[int] | list[str]


class ArrayLog:
    """Rows in arrays, read as `treecal.io.Outcomes` reads those of a file or table.

    Attributes
    ----------
    name
        Its name in messages.
    classes, labels
        The classes, and the labels that stand for them.
    names
        Names of the columns of their probabilities.
    problems
        The invalid rows.
    """

    def __init__(
        self,
        name: str,
        columns: Mapping[str, Any],
        labels: _Labels | None,
        *,
        forecast: Sequence[str],
        outcome: Sequence[str],
        keep: Sequence[str],
        weight: str | None = None,
        classes: Sequence[str | int] | None,
        on_error: OnError,
        tolerance: float | None,
    ) -> None:
        self.name, self.problems = name, Problems(name, on_error)
        self._columns = columns
        self._keep = keep
        self._rows = len(columns[outcome[0]])
        self._p, self.names = self._forecasts(forecast)
        single = len(self._p) == 1
        if single:  # the second of two classes
            self._p.insert(0, 1 - self._p[0])
            self.names.insert(0, f"1 - {self.names[0]}")
        size = len(self._p)
        if labels is None:
            self.classes = given_classes(outcome if classes is None else classes, len(outcome))
        elif classes is None:
            titles = [self.names[1]] if single else forecast if len(forecast) > 1 else []
            self.classes = in_order(map(str, labels.values), titles, size, column=outcome[0], source=name)
        else:
            self.classes = given_classes(classes, size)
        if single or len(forecast) > 1:
            if labels is None:
                check_hot(forecast, outcome)
            check_pairs(tuple(forecast), self.classes, known=classes is not None)
        if len(self.classes) != size:
            raise ParameterError(f"outcomes have {len(self.classes)} coordinates, expected {size}.")
        self.labels: tuple[str | int, ...] = tuple(range(size))
        if labels is None:
            self._outcomes = self._hot(outcome)
        else:
            whole = not all(isinstance(value, str) for value in labels.values)
            self.labels = Label(outcome[0], "", whole).values(self.classes)
            index = {label: k for k, label in enumerate(self.labels)}
            self._outcomes = np.array([*(index.get(value, -1) for value in labels.values), -1])[labels.places]
        self._weights = None if weight is None else self._numbers(weight)
        options: dict[str, Any] = {"outcome": outcome, "forecast": forecast, "one_hot": labels is None}
        if tolerance is None:
            tolerance = written_to(np.concatenate([p[:SAMPLE] for p in self._p]))
        decoder = Decoder(Simplex(classes=self.classes), **options, tolerance=tolerance, weight=weight)
        self._valid = self._check(decoder, tolerance)
        # Negative probabilities of valid rows, as rounding leaves them, are 0: see `valid_forecasts`.
        self._p = [np.where(self._valid & (p < 0), 0.0, p) if (p < 0).any() else p for p in self._p]

    def _forecasts(self, names: Sequence[str]) -> tuple[list[Array], list[str]]:
        """Return columns of probabilities, and their names."""
        lists = self._columns[names[0]]
        if lists.ndim == 2:
            entries = [np.asarray(column, np.float64) for column in lists.T]
            return entries, [f"{names[0]}[{k}]" for k in range(len(entries))]
        return [self._numbers(name) for name in names], list(names)

    def _numbers(self, name: str) -> Array:
        column = self._columns[name]
        if column.dtype == bool:
            raise FileError(f"column {name!r} of {self.name} holds BOOLEAN values, expected numbers.")
        return np.asarray(column, np.float64)

    def _hot(self, names: Sequence[str]) -> Integers:
        """Return which column holds a 1 beside zeros, -1 where there is none."""
        columns = [self._numbers(name) for name in names]
        total = np.zeros(self._rows)
        found = np.full(self._rows, -1)
        for column in columns:
            total += np.abs(column)
        for k, column in enumerate(columns):
            found[(column == 1) & (total == 1)] = k
        return found

    def _check(self, decoder: Decoder, tolerance: float) -> Any:
        """Return which rows are valid, and note what is wrong with the others."""
        valid = self._outcomes >= 0
        if self._weights is not None:
            valid &= valid_weights(self._weights)
        for rows in self._chunks():
            valid[rows] &= valid_forecasts(np.stack([p[rows] for p in self._p]), tolerance)
        invalid = np.flatnonzero(~valid)
        for at in invalid[: self.problems.most].tolist():
            why = decoder.complaint({name: self._columns[name][at : at + 1].tolist()[0] for name in decoder.columns})
            self.problems.add(Place(at + 1, None), why or "it cannot be read.")
        self.problems.count = len(invalid)
        return valid

    def _chunks(self) -> Iterator[slice]:
        rows = max(_LEAST, min(_ROWS, _CELLS // (len(self._p) + 1)))
        for begin in range(0, self._rows, rows):
            yield slice(begin, begin + rows)

    def __iter__(self) -> Iterator[Chunk]:
        for rows in self._chunks():
            at = rows.start + np.flatnonzero(self._valid[rows])
            if len(at):
                p = np.stack([column[at] for column in self._p])  # our own from here on: cells are found by it
                if not (p.min() >= 0.0 and p.max() <= 2.0):
                    raise FileError(f"{self.name} changed while it was read.", hint="audit a copy.")
                kept = {name: self._columns[name][at] for name in self._keep}
                weights = None if self._weights is None else self._weights[at]
                yield Chunk(at + 1, self._outcomes[at], p.T, kept, weights)

    def column(self, name: str) -> Any:
        """Return a column that is kept."""
        return self._columns[name]

    def scale(self) -> float:
        """Return what a weight of 1 counts, given all weights."""
        assert self._weights is not None
        counted = self._weights[valid_weights(self._weights) & (self._weights > 0)]
        return scale_of(len(counted), float(counted.max(initial=0.0)) or 1.0)

    def add_distinct(self, errors: ErrorSums, scale: float | None) -> Iterator[int]:
        """Count the distinct forecasts, together and of each class, of all rows and of each group; sum their errors.

        Yield the numbers of joint ones of all rows, as they are added.
        """
        at = np.flatnonzero(self._valid)
        weights = None
        if scale is not None and self._weights is not None:
            weights = whole_weights(self._weights[at], scale)
            at = at[weights > 0]
            weights = weights[weights > 0]
        outcomes = self._outcomes[at]
        d = len(self._p)
        by = errors.groups.by
        home = errors.groups.of([self._columns[name][at] for name in by], len(at)) if by else None
        together = np.zeros(len(at), np.int64)
        span = 1
        for k, column in enumerate(self._p):
            p = column[at] + 0.0  # -0.0 is 0.0
            runs = _Runs.of(p)
            places = runs.places()
            count = len(runs.starts)
            if span > _SPAN // count:  # numbered again, so that numbers stay small
                shorter = _Runs.of(together)
                together = shorter.places()
                span = len(shorter.starts)
            together = together * count + places
            span = span * count
            hits = (outcomes == k).astype(np.int64)
            for own, group in _parts(runs, places, home):
                for first, counts in own.counted(hits, weights, 2):
                    errors.add_counts(k, _of(group, first), counts.sum(axis=1), p[first, None], counts[:, 1:])
        for own, group in _parts(_Runs.of(together), None, home):
            for first, counts in own.counted(outcomes, weights, d):
                points = np.stack([column[at[first]] for column in self._p], axis=1) + 0.0
                errors.add_counts(JOINT, _of(group, first), counts.sum(axis=1), points, counts)
                if group is None:
                    yield len(first)


class _Runs(NamedTuple):
    """Numbers in ascending order: which row is where, and where the runs of equal ones begin."""

    order: Integers
    starts: Integers

    @classmethod
    def of(cls, numbers: Any) -> _Runs:
        order = np.argsort(numbers)
        ascending = numbers[order]
        return cls(order, np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])))

    def places(self) -> Integers:
        """Return the number of the run that each row is in."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.repeat(np.arange(len(self.starts)), self._lengths())
        return found

    def counted(self, labels: Integers, weights: Integers | None, classes: int) -> Iterator[tuple[Integers, Integers]]:
        """Yield a row of each run, and how often each label is in it, some runs at a time."""
        lengths = self._lengths()
        size = max(_LEAST, _CELLS // classes)
        for begin in range(0, len(self.starts), size):
            some = lengths[begin : begin + size]
            first = self.starts[begin]
            rows = self.order[first : first + some.sum()]
            cells = np.repeat(np.arange(len(some)) * classes, some) + labels[rows]
            counts = np.bincount(cells, minlength=len(some) * classes)
            if weights is not None:
                counts = np.zeros(len(some) * classes, np.int64)
                np.add.at(counts, cells, weights[rows])
            yield self.order[self.starts[begin : begin + size]], counts.reshape(len(some), classes)

    def _lengths(self) -> Integers:
        return np.diff(self.starts, append=len(self.order))


def _parts(runs: _Runs, places: Integers | None, home: Integers | None) -> Iterator[tuple[_Runs, Integers | None]]:
    """Yield the runs of all rows, and if there are groups those within each, with the groups."""
    yield runs, None
    if home is not None:
        places = runs.places() if places is None else places
        groups = _Runs.of(home)
        number = places * len(groups.starts) + groups.places()
        yield _Runs.of(number), home


def _of(group: Integers | None, rows: Integers) -> Integers:
    return np.full(len(rows), WHOLE) if group is None else group[rows]


def open_arrays(
    source: Any,
    name: str | None,
    *,
    forecast: str | Sequence[str],
    outcome: str | Sequence[str],
    by: Sequence[str],
    time: str | None = None,
    weight: str | None = None,
    classes: Sequence[str | int] | None,
    on_error: OnError,
    tolerance: float | None,
) -> ArrayLog | None:
    """Return arrays of numbers, text and dates as a log; None for what other libraries have to read.

    Columns to group rows by, and that of their times, are kept.
    """
    found = arrays_of(source)
    if found is None:
        return None
    title, arrays = found
    name = name or title
    asked = as_columns("forecast", forecast)
    names = as_columns("outcome", outcome)
    keep = tuple(dict.fromkeys([*by, *([] if time is None else [time])]))
    weights = [] if weight is None else [weight]
    check_tolerance(tolerance)
    check_columns(name, list(arrays), [*keep, *names, *asked, *weights])
    if not len(arrays[names[0]]):
        raise FileError(f"there are no rows in {name}.")
    numbers = [*weights, *(names if len(names) > 1 else [])]
    if any(arrays[each].dtype.kind not in "biuf" or arrays[each].dtype.itemsize > 8 for each in (*asked, *numbers)):
        return None
    if any(arrays[each].ndim > 1 for each in (*(asked if len(asked) > 1 else []), *numbers, *names, *keep)):
        return None
    own = {each: _kept(arrays[each]) for each in by}
    if time is not None:
        own[time] = None if time in by and arrays[time].dtype.kind == "U" else _time(arrays[time])
    labels = None if len(names) > 1 else _labels(arrays[names[0]], [] if classes is None else classes)
    if any(column is None for column in own.values()) or (len(names) == 1 and labels is None):
        return None
    return ArrayLog(
        name,
        arrays | own,
        labels,
        forecast=asked,
        outcome=names,
        keep=keep,
        weight=weight,
        classes=classes,
        on_error=on_error,
        tolerance=tolerance,
    )


def _kept(column: Any) -> Any:
    """Return a column to group rows by; None if it is neither numbers, text nor dates."""
    if column.dtype.kind == "O":
        kinds = {type(value) for value in column.tolist() if value is not None}
        return column if len(kinds) < 2 and kinds <= {str, bool, int} else None
    return column if column.dtype.kind == "U" else _time(column)


def _time(column: Any) -> Any:
    """Return a column of dates or numbers, also if it has dates as text; None if it has neither."""
    kind = column.dtype.kind
    if kind == "U":
        try:
            return column.astype("M8[us]") if all(map(_TIME.fullmatch, dict.fromkeys(column.tolist()))) else None
        except ValueError:  # a 13th month: whoever reads it next says so
            return None
    if kind == "M":
        known = np.datetime_data(column.dtype)[0] in _UNITS
        return column if known and np.array_equal(column.astype("M8[us]"), column, equal_nan=True) else None
    return column if kind in "biuf" and column.dtype.itemsize <= 8 else None


def _labels(column: Any, classes: Sequence[str | int]) -> _Labels | None:
    """Return a column of labels; None if it is neither integers nor text."""
    kind = column.dtype.kind
    if kind == "b":
        return _Labels(column.astype(np.int64), [0, 1])
    if kind in "OU":
        return _mixed(column.tolist(), {str(name) for name in classes})
    if kind not in "iuf" or column.dtype.itemsize > 8:
        return None
    there = np.isfinite(column)
    numbers = column[there]
    places = np.full(len(column), -1)
    values, places[there] = np.unique(numbers, return_inverse=True)
    if (np.abs(values.astype(np.float64)) >= _LARGEST).any():
        return None
    if (values == np.trunc(values)).all():  # pandas turns integers into floats where one is missing
        return _Labels(places, [int(value) for value in values.tolist()])
    return _Labels(places, [str(value) for value in values]) if there.all() else None


def _mixed(cells: list[Any], classes: set[str]) -> _Labels | None:
    """Return the labels in cells of any kind, if they are all of one, perhaps with missing ones."""
    kinds = {type(cell) for cell in cells if cell is not None}
    index: dict[Any, int] = {None: -1}
    if kinds == {str}:
        index[""] = -1
        if spelled := one_spelling({cell for cell in cells if cell is not None}, classes):
            cells = [spelled.get(cell, cell) for cell in cells]
        first = next(cell for cell in cells if cell is not None).strip()
        if first.startswith("[") and first not in classes:
            return None  # it may be a list of numbers
    elif kinds not in ({bool}, {int}):
        return None
    distinct = [cell for cell in dict.fromkeys(cells) if cell is not None and cell != ""]
    if kinds == {int} and any(not -_LARGEST <= cell < _LARGEST for cell in distinct):
        return None
    index |= {cell: k for k, cell in enumerate(distinct)}
    places = np.fromiter((index[cell] for cell in cells), np.int64, len(cells))
    return _Labels(places, distinct if kinds == {str} else [int(cell) for cell in distinct])


_Log = tuple[dict[str, Any], str, str | list[str], Sequence[str | int] | None, str | None]


def from_arrays(forecasts: Any, outcomes: Any, classes: Sequence[str | int] | None, weights: Any) -> _Log:
    """Return a log, and its columns: of the forecast, of the outcome; the classes; and the column of the weight."""
    titles = columns_of(forecasts)
    if classes is None and titles and all(isinstance(title, str) for title in titles) and _are_names(outcomes):
        classes = paired(titles, {name for name in _array("y", outcomes) if isinstance(name, str)}) or titles
    names = None if classes is None else [str(name) for name in classes]
    p = _array("P", by_column(names, forecasts, ForecastError))
    y = _array("y", by_column(names, outcomes, OutcomeError))
    if p.ndim not in (1, 2) or p.dtype.kind not in "biuf":
        raise ParameterError(
            f"P is {p.dtype} of shape {p.shape}, expected probabilities of shape (n, d), or (n,) for two classes."
        )
    if p.ndim == 2 and p.shape[1] == 1:
        raise ParameterError(
            f"P has shape {p.shape}, expected a column for each class.", hint="for two classes pass P[:, 0], (n,)."
        )
    d = 2 if p.ndim == 1 else p.shape[1]
    if y.shape not in ((len(p),), (len(p), d)):
        raise ParameterError(f"y has shape {y.shape}, expected ({len(p)},), the classes, or ({len(p)}, {d}), one-hot.")
    name = forecasts.name if p.ndim == 1 and is_series(forecasts) and isinstance(forecasts.name, str) else "p"
    name = "p" if name in ("", "y", "weight") else name  # one that names a class is of that class
    log: dict[str, Any] = {name: p}
    weight = None
    if weights is not None:
        if isinstance(weights, str):
            raise ParameterError.expected("weight", weights, f"an array of shape ({len(p)},) beside two arrays")
        log["weight"] = _array("weight", weights)
        weight = "weight"
        if log["weight"].shape != (len(p),):
            raise ParameterError(f"weight has shape {log['weight'].shape}, expected ({len(p)},).")
    if y.ndim == 1:
        return log | {"y": y}, name, "y", classes, weight
    hot = {f"y[{k}]": np.ascontiguousarray(column) for k, column in enumerate(y.T)}
    return log | hot, name, list(hot), range(d) if classes is None else classes, weight


def _are_names(outcomes: Any) -> bool:
    y = _array("y", outcomes)
    return y.ndim == 1 and len(y) > 0 and isinstance(y[0], str)


def _array(name: str, value: Any) -> NDArray[Any]:
    if np.ma.is_masked(value):
        raise ParameterError(f"{name} has masked entries.", hint="leave these rows out.")
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged; or a tensor on a GPU, or with a gradient
        raise ParameterError(f"{name} is a {type(value).__name__} that is no array: {error}") from None

"""Outcomes and their forecasts out of any file or table, a chunk of rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import ConvexSet, Simplex
from treecal.io._classes import find_classes, given_classes
from treecal.io._columns import Label, Numbers, hot_label, is_list, label, numbers
from treecal.io._decoder import Decoder, check_columns
from treecal.io._problems import OnError, Problems
from treecal.io._sources import LOG, Source, library, open_source
from treecal.io._text import Place
from treecal.io._valid import valid_forecasts

_CELLS, _LEAST, _ROWS = 1 << 22, 1 << 10, 122_880


class Chunk(NamedTuple):
    """Some rows that follow each other, invalid ones left out.

    Attributes
    ----------
    rows
        Their 1-based numbers; lines of a CSV file with too few or too many cells are not counted.
    outcomes
        The class of each, `(n,)`, as an index into the classes; or the outcomes themselves, `(n, d)`.
    forecasts
        The probabilities, `(n, d)`, if they were asked for: as they stand, not made to sum to 1.
    kept
        The columns to keep, as Arrow arrays, by name.
    """

    rows: Integers
    outcomes: Integers | Array
    forecasts: Array | None
    kept: dict[str, Any]


class Outcomes:
    """Rows of outcomes; each loop over them reads the source once, in the order of its rows. Made by `read_outcomes`.

    Attributes
    ----------
    source
        What is read.
    space
        The set outcomes lie in.
    classes
        Names of the classes, in the order of the coordinates; None where outcomes are vectors of another set.
    labels
        What the source has for these classes: text, or integers.
    problems
        The invalid rows of the last loop, once it has ended.
    tolerance
        How far from 1 probabilities may sum.
    rows
        How many rows a chunk has at most.
    """

    def __init__(
        self,
        source: Source,
        decoder: Decoder,
        outcome: Label | list[Numbers],
        forecast: list[Numbers],
        *,
        keep: Sequence[str],
        classes: tuple[str, ...] | None,
        space: ConvexSet,
        on_error: OnError,
    ) -> None:
        self.source, self.space, self.classes, self.tolerance = source, space, classes, decoder.tolerance
        self.problems = Problems(source.name, on_error)
        self._decoder, self._forecast, self._keep = decoder, forecast, tuple(keep)
        self._label = outcome if isinstance(outcome, Label) else None
        self.labels: tuple[str | int, ...] = () if self._label is None else self._label.values(classes or ())
        self._numbers = {"p": forecast, "y": [] if isinstance(outcome, Label) else outcome}
        entries = {
            letter: [sql for column in found for sql in column.entries] for letter, found in self._numbers.items()
        }
        columns = [f"{sql} AS {letter}{k}" for letter, found in entries.items() for k, sql in enumerate(found)]
        if self._label is not None:
            columns.append(f"{self._label.sql} AS label")
        columns += [f"{source.cell(name)} AS by{k}" for k, name in enumerate(self._keep)]
        self.sql = f"SELECT {', '.join(columns)} FROM {LOG}"
        """The columns `p0`, …, then `y0`, … or `label`, then `by0`, …: NULL where a cell is not what it must be."""
        self.rows = max(_LEAST, min(_ROWS, _CELLS // len(columns)))
        self._invalid, self._more = list[int](), 0  # rows to be explained, and how many more there are

    @property
    def _stored(self) -> dict[str, str] | None:
        """The columns that the SQL asks for, by the names it gives them, if it asks for no more than that."""
        asked: dict[str, Label | Numbers] = {} if self._label is None else {"label": self._label}
        for letter, found in self._numbers.items():
            asked |= {f"{letter}{k}": column for k, column in enumerate(found)}
        if not all(column.stored for column in asked.values()):
            return None
        columns = {name: column.name for name, column in asked.items()}
        return columns | {f"by{k}": name for k, name in enumerate(self._keep)}

    @property
    def names(self) -> list[str]:
        """What the probabilities are called in the source, one for each class."""
        return [name for column in self._forecast for name in column.names]

    def __iter__(self) -> Iterator[Chunk]:
        for before, batch in self.batches():
            chunk = self.read(batch, before)
            if len(chunk.rows) and not self._stopped:
                yield chunk

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Read the source once, and yield its rows as Arrow batches still to be checked, for `read`.

        With each comes how many rows were before.
        """
        self.problems = Problems(self.source.name, self.problems.on_error)
        self._invalid, self._more, before = list[int](), 0, 0
        with closing(self.source.batches(self.sql, rows=self.rows, columns=self._stored)) as batches:
            for batch in batches:
                yield before, batch
                before += batch.num_rows
                if self._stopped:
                    break
        for place, what in self.source.invalid(self._invalid, self._decoder):
            self.problems.add(place, what)
        for record in self._invalid[self.problems.count :]:  # the source has changed meanwhile
            self.problems.add(Place(record, None), "it was invalid, and is not when read again.")
        self.problems.count += self._more

    @property
    def _stopped(self) -> bool:
        return self.problems.on_error == "stop" and bool(self._invalid)

    def read(self, batch: Any, before: int) -> Chunk:
        """Return the valid rows of a batch that so many rows came before; take note of the others."""
        p, y = (np.stack(columns) if (columns := self.columns(batch, letter)) else None for letter in "py")
        good = np.ones(batch.num_rows, np.bool_)
        outcomes: Integers | Array
        if self._label is not None:
            outcomes = self.indices(batch)
            good &= outcomes >= 0
        else:
            assert y is not None
            outcomes = y.T
            good &= np.isfinite(outcomes).all(axis=1)
            good[good] = self.space.contains(outcomes[good])
        if p is not None:
            good &= valid_forecasts(p, self.tolerance)
        rows = np.arange(before + 1, before + 1 + batch.num_rows)
        kept = {name: batch.column(f"by{k}") for k, name in enumerate(self._keep)}
        if good.all():
            return Chunk(rows, outcomes, None if p is None else p.T, kept)
        invalid: list[int] = rows[~good].tolist()
        room = self.problems.most - len(self._invalid)
        self._invalid += invalid[:room]
        self._more += len(invalid[room:])
        mask = library("pyarrow").array(good)
        kept = {name: column.filter(mask) for name, column in kept.items()}
        return Chunk(rows[good], outcomes[good], None if p is None else p[:, good].T, kept)

    def columns(self, batch: Any, letter: str) -> list[Array]:
        """Return the probabilities ("p") or outcomes ("y") of a batch, column by column, NaN where one is missing."""
        size = sum(len(column.entries) for column in self._numbers[letter])
        columns = (batch.column(f"{letter}{k}") for k in range(size))
        return [np.asarray(column.to_numpy(zero_copy_only=False), np.float64) for column in columns]

    def indices(self, batch: Any) -> Integers:
        """Return the class of each row of a batch, -1 where it has none of them."""
        column = batch.column("label")
        if self._label is not None and self._label.integer:
            column = column.cast("int64")
        if self.labels == tuple(range(len(self.labels))) and not column.null_count:  # labels that are their indices
            codes: Integers = column.to_numpy()
            known = (codes >= 0) & (codes < len(self.labels))
            return codes if known.all() else np.where(known, codes, -1)
        arrow, compute = library("pyarrow"), library("pyarrow.compute")
        found = compute.index_in(column, value_set=arrow.array(self.labels, column.type), skip_nulls=True)
        return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def read_outcomes(
    source: Any,
    *,
    outcome: str | Sequence[str] | None = None,
    forecast: str | Sequence[str] | None = None,
    keep: Sequence[str] = (),
    classes: Sequence[str | int] | None = None,
    one_hot: bool = False,
    space: ConvexSet | None = None,
    on_error: OnError = "stop",
    tolerance: float = 1e-6,
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
) -> Outcomes:
    """Return the outcomes of a file or table of any size, to be looped over in chunks, in the order of the rows.

    Parameters
    ----------
    source
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`); a pandas, Polars or Arrow table; a DuckDB
        relation; a NumPy array, whose columns are called "0", "1", …; or a mapping from names to arrays.
    outcome
        The column of labels; or columns of numbers, or one of lists, for outcomes that are vectors. By default every
        column.
    forecast
        Columns of probabilities, one for each class in order; or one of lists; or, of two classes, the column of the
        second's.
    keep
        Columns to hand through.
    classes
        The labels, in order. By default the names of the space; or they are looked for in a first pass (see
        `find_classes`).
    one_hot
        Several columns of outcomes hold a 1 for the outcome's class and 0 for the others: read them as labels.
    space
        The set that vectors lie in, or the simplex whose vertices labels are; by default a simplex.
    on_error
        At an invalid row: "stop" raises and names it, "skip" counts it, "collect" keeps what was wrong with each.
    tolerance
        How far from 1 probabilities may sum: enough for float32 and for six decimals.
    memory_limit, temp_directory
        Memory that DuckDB may use, and where it goes when that is not enough.

    Examples
    --------
    >>> weather = {"day": np.arange(4), "sky": np.array(["sun", "rain", "sun", "fog"])}
    >>> rows = read_outcomes(weather, outcome="sky", classes=["rain", "sun"], on_error="skip")
    >>> [chunk.outcomes.tolist() for chunk in rows]
    [[1, 0, 1]]
    >>> print(rows.problems)
    1 invalid row left out:
      row 4: sky is 'fog', expected one of rain, sun.
    """
    if not (isinstance(tolerance, int | float) and 0 <= tolerance <= 0.1):
        raise ParameterError.expected("tolerance", tolerance, "a number from 0 to 0.1")
    opened = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
    names = list(opened.types) if outcome is None else _columns("outcome", outcome)
    check_columns(opened.name, list(opened.types), [*names, *keep])
    if not any(batch.num_rows for batch in opened.batches(f"SELECT 1 FROM {LOG} LIMIT 1", rows=1)):
        for place, why in opened.invalid([]):
            raise FileError.at(opened.name, *place, why)
        raise FileError(f"{opened.name} has no rows.")
    size = None if space is None else space.dim
    if isinstance(space, Simplex) and classes is None:
        classes = space.classes
    asked = [] if forecast is None else _columns("forecast", forecast)
    forecasts = numbers(opened, asked, size) if asked else []
    if len(forecasts) == 1 and len(forecasts[0].entries) == 1:  # the second of two classes
        (name,), (p,) = forecasts[0].names, forecasts[0].entries
        forecasts = [Numbers(name, [f"1 - {p}", p], [f"1 - {name}", name], stored=False)]
    size = sum(len(column.entries) for column in forecasts) or size
    outcomes: Label | list[Numbers]
    found: tuple[str, ...] | None = None
    hot = one_hot and len(names) > 1
    if hot:
        outcomes, found = hot_label(opened, names), given_classes(names if classes is None else classes, len(names))
    elif len(names) > 1 or is_list(opened, names[0]) or not isinstance(space, Simplex | None):
        outcomes = numbers(opened, names, size)
        entries = [name for column in outcomes for name in column.names]
        if isinstance(space, Simplex | None):
            found = given_classes(entries if classes is None else classes, len(entries))
    else:
        outcomes = label(opened, names[0])
        columns = [column.name for column in forecasts] if len(forecasts) > 1 else []
        found = find_classes(opened, outcomes, columns, size) if classes is None else given_classes(classes, size)
    dim = sum(len(column.entries) for column in outcomes) if isinstance(outcomes, list) else len(found or ())
    space = Simplex(classes=found or ()) if space is None else space
    if dim != space.dim or (forecasts and dim != size):
        raise ParameterError(f"outcomes have {dim} coordinates, expected {size or space.dim}.")
    named = Simplex(classes=found) if isinstance(outcomes, Label) and found else space
    decoder = Decoder(named, outcome=names, forecast=asked, one_hot=hot, tolerance=float(tolerance))
    return Outcomes(opened, decoder, outcomes, forecasts, keep=keep, classes=found, space=space, on_error=on_error)


def _columns(name: str, given: str | Sequence[str]) -> list[str]:
    columns = [given] if isinstance(given, str) else [str(column) for column in given]
    if not columns or len(set(columns)) < len(columns):
        raise ParameterError.expected(name, given, "one or more different columns")
    return columns

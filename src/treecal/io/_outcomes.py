"""Outcomes, and the probabilities somebody gave them, out of any file or table, a chunk of rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import ConvexSet, Simplex
from treecal.io._classes import find_classes, given_classes, listed
from treecal.io._columns import Label, Numbers, column_type, identifier, is_list, label, numbers
from treecal.io._columns import one_hot as hot_label
from treecal.io._problems import OnError, Problems
from treecal.io._sources import LOG, Source, library, open_source
from treecal.io._valid import valid_forecasts

_CELLS, _LEAST, _ROWS = 1 << 22, 1 << 10, 122_880


class Chunk(NamedTuple):
    """Some rows that follow each other, bad ones left out.

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
        Names of the classes, in the order of the coordinates; None where outcomes are no classes.
    labels
        What the source has for these classes: text, or integers.
    problems
        The bad rows of the last loop, once it has ended.
    tolerance
        How far from 1 probabilities may sum.
    rows
        How many rows a chunk has at most.
    """

    def __init__(
        self,
        source: Source,
        outcome: Label | list[Numbers],
        forecast: list[Numbers],
        *,
        keep: Sequence[str],
        classes: tuple[str, ...] | None,
        space: ConvexSet,
        on_error: OnError,
        tolerance: float,
    ) -> None:
        self.source, self.space, self.classes, self.tolerance = source, space, classes, tolerance
        self.problems = Problems(source, on_error)
        self._label = outcome if isinstance(outcome, Label) else None
        self.labels: tuple[str | int, ...] = () if self._label is None else self._label.values(classes or ())
        self._keep = tuple(keep)
        vectors = {"p": forecast, "y": [] if isinstance(outcome, Label) else outcome}
        self._cells = {letter: _numbered(letter, columns) for letter, columns in vectors.items()}
        columns = [f"{sql} AS {name}" for cells in self._cells.values() for cell in cells for name, sql in cell.entries]
        if self._label is not None:
            columns.append(f"{self._label.sql} AS label")
        columns += [f"{identifier(name)} AS by{k}" for k, name in enumerate(self._keep)]
        self.sql = f"SELECT {', '.join(columns)} FROM {LOG}"
        """The columns `p0`, …, then `y0`, … or `label`, then `by0`, …: NULL where a cell is not what it must be."""
        self.rows = max(_LEAST, min(_ROWS, _CELLS // len(columns)))

    @property
    def _stored(self) -> dict[str, str] | None:
        """The columns that the SQL asks for, by the names it gives them, if it asks for no more than that."""
        cells = [cell for cells in self._cells.values() for cell in cells]
        stored = self._label is None or self._label.stored
        if not stored or any(cell.column.doubtful or len(cell.entries) > 1 for cell in cells):
            return None
        columns = {cell.entries[0][0]: cell.column.name for cell in cells}
        if self._label is not None:
            columns["label"] = self._label.name
        return columns | {f"by{k}": name for k, name in enumerate(self._keep)}

    @property
    def _doubtful(self) -> list[_Cell]:
        """The cells that may hold something else than what they must."""
        return [cell for cells in self._cells.values() for cell in cells if cell.column.doubtful]

    @property
    def names(self) -> list[str]:
        """What the probabilities are called in the source, one for each class."""
        return [name for cell in self._cells["p"] for name in cell.column.names]

    def __iter__(self) -> Iterator[Chunk]:
        for before, batch in self.batches():
            chunk = self.read(batch, before)
            if len(chunk.rows):
                yield chunk

    def batches(self) -> Iterator[tuple[int, Any]]:
        """Read the source once, and yield its rows as Arrow batches that nobody has looked at, for `read`.

        With each comes how many rows were before.
        """
        self.problems = Problems(self.source, self.problems.on_error)
        sql = self.sql
        if cells := self._doubtful:  # what a cell holds is asked for only where it is not what it must be
            gone = " OR ".join(f"{entry} IS NULL" for cell in cells for _, entry in cell.entries)
            held = ", ".join(cell.column.text for cell in cells)
            sql = sql.removesuffix(f" FROM {LOG}") + f", CASE WHEN {gone} THEN [{held}] END AS held FROM {LOG}"
        before = 0
        for batch in self.source.batches(sql, rows=self.rows, columns=self._stored):
            yield before, batch
            before += batch.num_rows
        self.problems.close()

    def read(self, batch: Any, before: int) -> Chunk:
        """Return the good rows of a batch that so many rows came before; take note of the bad ones."""
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
        for at in np.flatnonzero(~good).tolist():
            if self.problems.enough:
                self.problems.count += 1
                continue
            what, hint = self._explain(
                batch.slice(at, 1), p if p is None else p[:, at], None if y is None else y[:, at]
            )
            self.problems.add(before + 1 + at, what, hint=hint)
        mask = library("pyarrow").array(good)
        kept = {name: column.filter(mask) for name, column in kept.items()}
        return Chunk(rows[good], outcomes[good], None if p is None else p[:, good].T, kept)

    def columns(self, batch: Any, letter: str) -> list[Array]:
        """Return the probabilities ("p") or outcomes ("y") of a batch, column by column, NaN where one is missing."""
        names = [name for cell in self._cells[letter] for name, _ in cell.entries]
        return [np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64) for name in names]

    def indices(self, batch: Any) -> Integers:
        """Return the class of each row of a batch, -1 where it is none."""
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

    def _explain(self, row: Any, p: Array | None, y: Array | None) -> tuple[str, str | None]:
        """Say what is wrong with a row, and what may help."""
        held = row.column("held")[0].as_py() if self._doubtful else None
        texts = dict(zip((cell.column.name for cell in self._doubtful), held or (), strict=False))
        for column, entries in (cell for cells in self._cells.values() for cell in cells):
            if any(row.column(name)[0].as_py() is None for name, _ in entries):
                text = texts.get(column.name)
                if text is None:
                    return f"{column.name} is missing, expected {column.expected}.", None
                comma = "write numbers with a point: 0.5." if "," in text and "[" not in text else None
                return f"{column.name} is {_short(text)}, expected {column.expected}.", comma
        if self._label is not None:
            value = row.column("label")[0].as_py()
            if value is None:
                return f"{self._label.name} is missing, expected one of {listed(self.classes or ())}.", None
            if value not in self.labels:
                return f"{self._label.name} is {_short(value)}, expected one of {listed(self.classes or ())}.", None
        elif y is not None:
            if not np.isfinite(y).all():
                return f"the outcome holds {y[~np.isfinite(y)][0]}, expected finite numbers.", None
            if not self.space.contains(y):
                return f"the outcome lies outside {self.space!r}: {self.space.complaint(y)}.", None
        assert p is not None
        for name, value in reversed(list(zip(self.names, p, strict=True))):  # p before 1 - p
            if not 0 <= value <= 1 + self.tolerance:
                return f"{name} is {value:g}, expected a probability from 0 to 1.", None
        return (
            f"the probabilities sum to {p.sum():.10g}, expected 1 within {self.tolerance:g}.",
            "if they were rounded, allow for it with a larger tolerance.",
        )


class _Cell(NamedTuple):
    """A column of numbers, and the names and SQL of what it gives."""

    column: Numbers
    entries: list[tuple[str, str]]


def _numbered(letter: str, columns: list[Numbers]) -> list[_Cell]:
    cells, k = [], 0
    for column in columns:
        cells.append(_Cell(column, [(f"{letter}{k + i}", sql) for i, sql in enumerate(column.entries)]))
        k += len(column.entries)
    return cells


def _short(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


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
        The labels, in order. By default they are looked for in a first pass: see `find_classes`.
    one_hot
        Several columns of outcomes hold a 1 for the class that happened and 0 for the others: read them as labels.
    space
        The set that vectors lie in, or the simplex whose vertices labels are; by default a simplex.
    on_error
        At a bad row: "stop" raises and names it, "skip" counts it, "collect" keeps what was wrong with each.
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
    1 bad row left out:
      row 4: sky is 'fog', expected one of rain, sun.
    """
    if not (isinstance(tolerance, int | float) and 0 <= tolerance <= 0.1):
        raise ParameterError.expected("tolerance", tolerance, "a number from 0 to 0.1")
    opened = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
    names = list(opened.types) if outcome is None else _columns("outcome", outcome)
    for name in (*names, *keep):
        column_type(opened, name)
    if not any(batch.num_rows for batch in opened.batches(f"SELECT 1 FROM {LOG} LIMIT 1", rows=1)):
        for place, why in opened.torn():
            raise FileError.at(opened.name, *place, why)
        raise FileError(f"{opened.name} has no rows.")
    size = None if space is None else space.dim
    said = [] if forecast is None else numbers(opened, _columns("forecast", forecast), size)
    if len(said) == 1 and len(said[0].entries) == 1:  # the second of two classes
        (column,) = said
        said = [
            column._replace(
                entries=[f"1 - {column.entries[0]}", *column.entries], names=[f"1 - {column.name}", column.name]
            )
        ]
    size = sum(len(column.entries) for column in said) or size
    happened: Label | list[Numbers]
    found: tuple[str, ...] | None = None
    if one_hot and len(names) > 1:
        happened, found = hot_label(opened, names), given_classes(names if classes is None else classes, len(names))
    elif len(names) > 1 or is_list(opened, names[0]) or (space is not None and space.dim == 1):
        happened = numbers(opened, names, size)
        entries = [name for column in happened for name in column.names]
        space = Simplex(len(entries)) if space is None else space
        if isinstance(space, Simplex):
            found = given_classes(entries if classes is None else classes, len(entries))
    else:
        happened = label(opened, names[0])
        columns = [column.name for column in said] if len(said) > 1 else []
        found = find_classes(opened, happened, columns, size) if classes is None else given_classes(classes, size)
    dim = sum(len(column.entries) for column in happened) if isinstance(happened, list) else len(found or ())
    space = Simplex(dim) if space is None else space
    if dim != space.dim or (said and dim != size):
        raise ParameterError(f"outcomes have {dim} coordinates, expected {size or space.dim}.")
    return Outcomes(
        opened, happened, said, keep=keep, classes=found, space=space, on_error=on_error, tolerance=float(tolerance)
    )


def _columns(name: str, given: str | Sequence[str]) -> list[str]:
    columns = [given] if isinstance(given, str) else [str(column) for column in given]
    if not columns or len(set(columns)) < len(columns):
        raise ParameterError.expected(name, given, "one or more different columns")
    return columns

"""Outcomes and forecasts from any file or table, in chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import (
    ROUNDING,
    SAMPLE,
    ConvexSet,
    Simplex,
    check_hot,
    check_pairs,
    valid_forecasts,
    written_to,
)
from treecal.io._columns import (
    Label,
    Numbers,
    find_classes,
    given_classes,
    hot_label,
    in_one_spelling,
    is_list,
    label,
    number,
    numbers,
    valid_weights,
)
from treecal.io._decoder import Decoder, Keys, listed, one_spelling
from treecal.io._duckdb import library
from treecal.io._open import open_source
from treecal.io._problems import OnError, Problems
from treecal.io._source import LOG, Source
from treecal.io._text import Place

_CELLS = 1 << 17  # of a chunk: as many as caches hold
_LEAST = 1 << 10
_ROWS = 122_880


class Chunk(NamedTuple):
    """Consecutive rows, without invalid ones.

    Attributes
    ----------
    rows
        Their 1-based numbers; lines of a CSV file with too few or too many cells are not counted.
    outcomes
        The index of the class of each, `(n,)`; or the outcomes themselves, `(n, d)`.
    forecasts
        The probabilities, `(n, d)`, if they were asked for: as they are, not rescaled to sum to 1; negative ones,
        within the tolerance, are 0.
    kept
        The columns to pass through, as Arrow arrays, by name.
    weights
        The weight of each, if they were asked for.
    """

    rows: Integers
    outcomes: Integers | Array
    forecasts: Array | None
    kept: dict[str, Any]
    weights: Array | None = None


class Outcomes:
    """Rows of outcomes; each iteration reads the source once, in the order of its rows. Returned by `read_outcomes`.

    Attributes
    ----------
    source
        The source.
    space
        The set outcomes lie in.
    classes
        Names of the classes, in the order of the coordinates; None where outcomes are vectors of another set.
    labels
        The labels of these classes in the source: text, or integers.
    names
        Names of the probabilities in the source, one per class.
    problems
        The invalid rows of the last iteration, once it has ended.
    tolerance
        To what probabilities were rounded.
    weighted
        Whether rows have weights.
    sql
        The columns `p0`, …, then `y0`, … or `label`, perhaps `w`, then `by0`, …: NULL where a cell is invalid.
    rows
        Maximum number of rows in a chunk.
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
        weight: Numbers | None = None,
        keys: Keys | None = None,
    ) -> None:
        self.source = source
        self.space = space
        self.classes = classes
        self.tolerance = decoder.tolerance
        self.problems = Problems(source.name, on_error)
        self.names = [name for column in forecast for name in column.names]
        self._decoder = decoder
        self._keep = (*keep, *(keys or ()))
        self._keys = keys
        self._label = outcome if isinstance(outcome, Label) else None
        self.labels: tuple[str | int, ...] = () if self._label is None else self._label.values(classes or ())
        numbers = {"p": forecast, "y": [] if isinstance(outcome, Label) else outcome}
        entries = {letter: _entries(found) for letter, found in numbers.items()}
        self._sizes = {letter: len(found) for letter, found in entries.items()}
        columns = {f"{letter}{k}": sql for letter, found in entries.items() for k, sql in enumerate(found)}
        parts: list[Label | Numbers] = [*forecast, *numbers["y"]]
        if self._label is not None:
            columns["label"] = self._label.sql
            parts.append(self._label)
        self.weighted = weight is not None
        if weight is not None:
            columns["w"] = weight.entries[0]
            parts.append(weight)
        columns |= {f"by{k}": source.moment(name) for k, name in enumerate(self._keep)}
        self.sql = f"SELECT {', '.join(f'{entry} AS {name}' for name, entry in columns.items())} FROM {LOG}"
        self.rows = max(_LEAST, min(_ROWS, _CELLS // len(columns)))
        # Of two classes the column of one may be stored, and the probability of the other is the rest.
        read = [name for name in columns if name != "p0" or len(forecast) != 1]
        names = [part.name for part in parts] + list(self._keep)
        stored = all(part.stored for part in parts) and source.day_first not in self._keep
        self._stored = dict(zip(read, names, strict=True)) if stored else None

    @property
    def name(self) -> str:
        """The name of the source, in messages."""
        return self.source.name

    def __iter__(self) -> Iterator[Chunk]:
        self.problems = Problems(self.source.name, self.problems.on_error)
        for part in self.source.parts():
            yield from self._valid(part)

    def _valid(self, part: Source) -> Iterator[Chunk]:
        """Yield the valid rows of a part; then say what is wrong with the others, and check that none was lost."""
        problems = self.problems
        before = problems.count
        rows = 0
        left_out = 0
        invalid: list[int] = []  # those of them that are kept
        complete = True
        with closing(part.batches(self.sql, rows=self.rows, columns=self._stored)) as batches:
            for batch in batches:
                chunk, wrong = self.read(batch, rows)
                rows += batch.num_rows
                left_out += len(wrong)
                invalid += wrong[: max(0, problems.most - before - len(invalid))]
                if wrong and problems.on_error == "stop":
                    complete = False
                    break
                if len(chunk.rows):
                    yield chunk
        name = None if part is self.source else part.name
        for place, why in part.invalid(invalid, self._decoder):
            problems.add(place, why, file=name)
        for row in invalid[problems.count - before :]:  # the source has changed meanwhile
            problems.add(Place(row, None), "it was invalid, but is valid when read again.", file=name)
        problems.count += left_out - len(invalid)
        if complete:
            wanted = list(dict.fromkeys([*self._decoder.columns, *self._keep]))
            part.check_complete(rows, columns=wanted, valid=rows - left_out)

    def read(self, batch: Any, before: int) -> tuple[Chunk, list[int]]:
        """Return the valid rows of a batch that comes after `before` others, and the numbers of the invalid ones."""
        p = self._numbers(batch, "p")
        y = self._numbers(batch, "y").T
        outcomes: Integers | Array
        valid: Any
        if self._label is not None:
            outcomes = self._indices(batch.column("label"), self._label)
            valid = outcomes >= 0
        else:
            outcomes = y
            valid = np.isfinite(y).all(axis=1)
            valid[valid] = self.space.contains(y[valid])
        weights = None
        if self.weighted:
            weights = np.asarray(batch.column("w").to_numpy(zero_copy_only=False), np.float64)
            valid = valid & valid_weights(weights)
        kept = {name: batch.column(f"by{k}") for k, name in enumerate(self._keep)}
        if self._keys is not None:
            named, numbered = self._keys.read(kept)
            kept = kept | named
            valid = valid & numbered
        return self._checked(p, outcomes, valid, before, weights, kept)

    def _checked(
        self,
        p: Array,
        outcomes: Integers | Array,
        valid: Any,
        before: int,
        weights: Array | None = None,
        kept: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Chunk, list[int]]:
        """Return the valid rows of those whose other columns are `valid`, and the numbers of the invalid ones."""
        if len(p):
            valid = valid & valid_forecasts(p, self.tolerance)
        rows = before + 1 + np.arange(len(outcomes))
        left_out: list[int] = rows[~valid].tolist()
        if left_out:
            mask = library("pyarrow").array(valid)
            kept = {name: column.filter(mask) for name, column in kept.items()}
            rows = rows[valid]
            outcomes = outcomes[valid]
            p = p[:, valid]
            weights = None if weights is None else weights[valid]
        if len(p) and (p < 0).any():
            p = np.maximum(p, 0.0)
        return Chunk(rows, outcomes, p.T if len(p) else None, dict(kept), weights), left_out

    def _numbers(self, batch: Any, letter: str) -> Array:
        """Return the probabilities ("p") or outcomes ("y") of a batch, `(d, n)`, NaN where one is missing."""
        names = [f"{letter}{k}" for k in range(self._sizes[letter])]
        single = letter == "p" and "p0" not in batch.schema.names
        columns = (batch.column(name) for name in names[single:])
        found = [np.asarray(column.to_numpy(zero_copy_only=False), np.float64) for column in columns]
        if single and found:
            found.insert(0, 1 - found[0])
        return np.stack(found) if found else np.empty((0, batch.num_rows))

    def _indices(self, column: Any, label: Label) -> Integers:
        """Return the class of each label, -1 for others."""
        if label.integer:
            column = column.cast("int64")
        if self.labels == tuple(range(len(self.labels))) and not column.null_count:  # labels that are their indices
            codes: Integers = column.to_numpy()
            known = (codes >= 0) & (codes < len(self.labels))
            return codes if known.all() else np.where(known, codes, -1)
        arrow = library("pyarrow")
        compute = library("pyarrow.compute")
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
    tolerance: float | None = 1e-6,
    weight: str | None = None,
    keys: Keys | None = None,
) -> Outcomes:
    """Return the outcomes of a file or table of any size, to be read in chunks, in the order of the rows.

    Parameters
    ----------
    source
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`); a pandas, Polars or Arrow table; a DuckDB
        relation; a NumPy array, whose columns are named "0", "1", …; a mapping from names to arrays; or what
        `open_source` returns.
    outcome
        The column of labels; or, for vectors, columns of numbers or one column of lists. By default every column.
    forecast
        Columns of probabilities, one per class in order; or one column of lists; or, for two classes, the column of
        the second one, or of the one that it is named after (`p_rain`).
    keep
        Columns to pass through.
    classes
        The labels, in order. By default the names of the space, or those found in a first pass.
    one_hot
        Whether several columns of outcomes are labels, with a 1 for the outcome's class and 0 for the others.
    space
        The set that vectors lie in, or the simplex whose vertices labels are; by default a simplex.
    on_error
        At an invalid row: "stop" raises and names it, "skip" counts it, "collect" keeps it with its reason.
    tolerance
        To what probabilities were rounded: those of two classes may sum to 1 within it, those of d within d/2 times it;
        the default suffices for float32 and for six decimals. With None the decimals of the first rows tell.
    weight
        Column of the weights of rows: 0, or from 1e-12 to 1e12.
    keys
        Columns of the key of each row, and of its number: passed through as text and integers. A row without either is
        invalid.

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
    check_tolerance(tolerance)
    opened = open_source(source)
    names = list(opened.types) if outcome is None else as_columns("outcome", outcome)
    opened.check([*names, *keep, *(keys or ())])
    if keys is not None:
        keys.check(opened.name, opened.types)
    if not any(batch.num_rows for batch in opened.batches(f"SELECT 1 FROM {LOG} LIMIT 1", rows=1)):
        for place, why in opened.invalid([]):
            raise FileError.at(opened.name, *place, why)
        raise FileError(f"there are no rows in {opened.name}.")
    size = None if space is None else space.dim
    if isinstance(space, Simplex) and classes is None:
        classes = space.classes
    asked = [] if forecast is None else as_columns("forecast", forecast)
    forecasts = numbers(opened, asked, size) if asked else []
    single = len(forecasts) == 1 and len(forecasts[0].entries) == 1
    if single:  # the second of two classes
        (name,) = forecasts[0].names
        (p,) = forecasts[0].entries
        forecasts = [Numbers(name, [f"1 - {p}", p], [f"1 - {name}", name], stored=forecasts[0].stored)]
    size = len(_entries(forecasts)) or size
    known = [] if classes is None else [str(name) for name in classes]
    outcomes: Label | list[Numbers]
    found: tuple[str, ...] | None = None
    hot = one_hot and len(names) > 1
    if hot:
        outcomes = hot_label(opened, names)
        found = given_classes(names if classes is None else classes, len(names))
    elif len(names) > 1 or is_list(opened, names[0], labels=known) or not isinstance(space, Simplex | None):
        outcomes = numbers(opened, names, size)
        coordinates = [name for column in outcomes for name in column.names]
        if isinstance(space, Simplex | None):
            found = given_classes(coordinates if classes is None else classes, len(coordinates))
    else:
        outcomes = label(opened, names[0])
        columns = [column.name for column in forecasts] if single or len(forecasts) > 1 else []
        if classes is None:
            found, outcomes = find_classes(opened, outcomes, columns, size)
        else:
            found = given_classes(classes, size)
            outcomes = in_one_spelling(outcomes, one_spelling((), found))
    if found is not None and (single or len(forecasts) > 1):
        if hot:
            check_hot(asked, names)
        check_pairs(tuple(asked), found, known=classes is not None)
    dim = len(_entries(outcomes)) if isinstance(outcomes, list) else len(found or ())
    space = Simplex(classes=found or ()) if space is None else space
    if dim != space.dim or (forecasts and dim != size):
        raise ParameterError(f"outcomes have {dim} coordinates, expected {size or space.dim}.")
    named = Simplex(classes=found) if isinstance(outcomes, Label) and found else space
    if tolerance is None:
        tolerance = _written_to(opened, _entries(forecasts))
    more: dict[str, Any] = {"one_hot": hot, "tolerance": float(tolerance), "weight": weight, "keys": keys}
    more["decimal"] = opened.decimal
    decoder = Decoder(named, outcome=names, forecast=asked, **more)
    own = None if weight is None else number(opened, weight)
    options: dict[str, Any] = {"keep": keep, "classes": found, "space": space, "on_error": on_error, "weight": own}
    return Outcomes(opened, decoder, outcomes, forecasts, **options, keys=keys)


def find_probabilities(source: Source, outcome: str, classes: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of a log that hold the probabilities, by the names of the classes.

    Examples
    --------
    >>> log = open_source({"P(sun)": np.array([0.75]), "P(rain)": np.array([0.25]), "sky": np.array(["sun"])})
    >>> find_probabilities(log, "sky", ["rain", "sun"])
    ('P(rain)', 'P(sun)')
    """
    there = list(source.types)
    source.check([outcome], remedy="name it with --outcome.")
    labels = classes or read_outcomes(source, outcome=outcome).classes or ()
    decoder = Decoder(Simplex(classes=labels))
    if not (found := decoder.forecast_columns([name for name in there if name != outcome])):
        raise FileError(
            f"{source.name} has no probabilities: looked for {decoder.sought()}; it has {listed(there)}.",
            hint="name them with forecast=, in the shell --forecast; of two classes one column will do.",
        )
    if len(found) == 2 and len(alone := [name for name in found if name in there]) == 1:
        (missing,) = {*found} - {*alone}
        raise FileError(
            f"{source.name} has no column {missing!r}. It has {listed(there)}.",
            hint=f"of two classes one column will do: forecast={alone[0]!r}, in the shell --forecast {alone[0]}.",
        )
    return found


def _entries(columns: list[Numbers]) -> list[str]:
    return [entry for column in columns for entry in column.entries]


def _written_to(source: Source, entries: Sequence[str]) -> float:
    """Return to what the probabilities of the first rows were rounded."""
    chosen = ", ".join(f"{entry} AS p{k}" for k, entry in enumerate(entries))
    rows = source.batches(f"SELECT {chosen} FROM {LOG} LIMIT {SAMPLE}", rows=SAMPLE)
    found = [np.asarray(column.fill_null(np.nan), np.float64) for batch in rows for column in batch.columns]
    return written_to(np.concatenate(found)) if found else ROUNDING


def check_tolerance(tolerance: float | None) -> None:
    """Raise an error unless probabilities may sum to that far from 1."""
    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 <= tolerance <= 0.1):
        raise ParameterError.expected("tolerance", tolerance, "a number from 0 to 0.1")


def as_columns(name: str, given: str | Sequence[str]) -> list[str]:
    """Return names of columns, which must be distinct."""
    columns = [given] if isinstance(given, str) else [str(column) for column in given]
    if not columns or len(set(columns)) < len(columns):
        raise ParameterError.expected(name, given, "one or more distinct columns")
    return columns

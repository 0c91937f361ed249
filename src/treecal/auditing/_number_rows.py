"""The rows of a log of forecasts of a number, some at a time: what each column stands for, and what is invalid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.geometry import quantile_levels
from treecal.io import LOG, OnError, Place, Problems, Source, arrays_of, check_columns, library
from treecal.measures import Laws, Members, Moments, Quantiles

AT_ONCE = 1 << 16
"""Rows in a chunk."""
_NUMERIC = {"DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "UINTEGER", "USMALLINT", "UTINYINT"}
"""Types of columns that need no SQL to be read as numbers."""


@dataclass(frozen=True)
class Columns:
    """What the columns of a log hold: quantiles of some levels, members of an ensemble, or mean and sd."""

    outcome: str
    forecast: tuple[str, ...]
    levels: tuple[float, ...] = ()
    form: str = "quantiles"

    @classmethod
    def named(
        cls,
        outcome: Any,
        quantiles: Mapping[str, float] | Sequence[str] | None,
        members: Sequence[str] | None,
        mean: str | None,
        sd: str | None,
    ) -> Columns:
        """Return them as they were named, or raise."""
        if not isinstance(outcome, str):
            raise ParameterError.expected("outcome", outcome, "the name of the column of the numbers that followed")
        given = [each is not None for each in (quantiles, members, mean)]
        if sum(given) != 1 or (mean is None) != (sd is None):
            raise ParameterError(
                "forecasts of numbers are quantiles, or members, or mean and sd: one of the three, and no other.",
                hint="audit(log, quantiles={'q10': 0.1, 'q90': 0.9}, outcome='y'), or mean='m', sd='s'.",
            )
        if mean is not None and sd is not None:
            return cls(outcome, (mean, sd), form="normal")
        if members is not None:
            names = (members,) if isinstance(members, str) else tuple(members)
            if len(names) < 2:
                raise ParameterError.expected("members", members, "the columns of two members or more")
            return cls(outcome, names, form="members")
        assert quantiles is not None
        if isinstance(quantiles, Mapping):
            by_level = quantile_levels(quantiles.values())
            name_of = {level: name for name, level in quantiles.items()}
            return cls(outcome, tuple(name_of[tau] for tau in by_level.values()), tuple(by_level))
        found = quantile_levels([quantiles] if isinstance(quantiles, str) else quantiles)
        return cls(outcome, tuple(found.values()), tuple(found))

    def laws(self, forecasts: Array) -> Laws:
        """Return the forecasts of valid rows."""
        if self.form == "quantiles":
            return Quantiles(self.levels, forecasts)
        return Members(forecasts) if self.form == "members" else Moments(forecasts[:, 0], forecasts[:, 1])


@dataclass
class Repairs:
    """How many rows were repaired: quantiles cross, and were sorted; or members are missing, and were left out."""

    crossing: int = 0
    missing: int = 0

    def __str__(self) -> str:
        found = []
        if self.crossing:
            found.append(f"Quantiles cross in {_rows(self.crossing)}, and were sorted.")
        if self.missing:
            found.append(f"Members are missing in {_rows(self.missing)}, and were left out.")
        return " ".join(found)


class NumberChunk(NamedTuple):
    """Valid rows: forecasts `(n, columns)`, outcomes `(n,)`, and other columns as they are."""

    forecasts: Array
    outcomes: Array
    kept: dict[str, Any]


class NumberRows:
    """A log of forecasts of a number: a source of DuckDB's, or arrays.

    Parameters
    ----------
    source
        Arrays by name, or an open source.
    columns
        What its columns hold.
    keep
        Names of other columns.
    on_error
        What to do at an invalid row.
    """

    def __init__(self, source: Any, columns: Columns, keep: Sequence[str], on_error: OnError) -> None:
        self.columns = columns
        self.keep = tuple(dict.fromkeys(keep))
        self.repairs = Repairs()
        names = [columns.outcome, *columns.forecast, *self.keep]
        found = arrays_of(source)
        self.arrays: dict[str, NDArray[Any]] | None = None
        if found is not None:
            self.name, self.arrays = found
            check_columns(self.name, list(self.arrays), names)
        else:
            self.source: Source = source
            self.name = self.source.name
            self.source.check(names)
        self.problems = Problems(self.name, on_error)

    def column(self, name: str) -> Iterable[Any]:
        """Return the cells of a column of times, some at a time."""
        return self.source.moments(name, AT_ONCE) if self.arrays is None else [self.arrays[name]]

    def __iter__(self) -> Iterator[NumberChunk]:
        for file, before, numbers, kept in self._read():
            yield self._checked(numbers, kept, file, before)

    def _read(self) -> Iterator[tuple[str | None, int, Array, dict[str, Any]]]:
        """Yield the file if there are several, the rows before, the numbers with the outcome last, other columns."""
        names = [*self.columns.forecast, self.columns.outcome]
        if self.arrays is not None:
            count = len(self.arrays[names[0]])
            for at in range(0, count, AT_ONCE):
                part = slice(at, at + AT_ONCE)
                numbers = np.column_stack([_numbers(self.arrays[name][part]) for name in names])
                yield None, at, numbers, {name: self.arrays[name][part] for name in self.keep}
            return
        parts = list(self.source.parts())
        names_of = [f"f{k}" for k in range(len(names))]
        for source in parts:
            cells = [f"TRY_CAST({source.cell(name)} AS DOUBLE) AS f{k}" for k, name in enumerate(names)]
            cells += [f"{source.moment(name)} AS k{k}" for k, name in enumerate(self.keep)]
            plain = not self.keep and all(source.types[name] in _NUMERIC for name in names)
            columns = dict(zip(names_of, names, strict=True)) if plain else None
            at = 0
            for batch in source.batches(f"SELECT {', '.join(cells)} FROM {LOG}", rows=AT_ONCE, columns=columns):
                numbers = np.empty((len(names), len(batch[names_of[0]]))).T  # each column by itself in memory
                for k, name in enumerate(names_of):
                    numbers[:, k] = batch[name].to_numpy(zero_copy_only=False)
                yield (
                    source.name if len(parts) > 1 else None,
                    at,
                    numbers,
                    {name: batch[f"k{k}"] for k, name in enumerate(self.keep)},
                )
                at += len(numbers)

    def _checked(self, numbers: Array, kept: dict[str, Any], file: str | None, before: int) -> NumberChunk:
        """Return the valid rows, repaired where that is possible; the others are problems."""
        forecasts = numbers[:, :-1]
        with np.errstate(over="ignore", invalid="ignore"):
            clean = bool(np.isfinite(numbers.sum()))  # as nearly always: nothing is missing or infinite
        finite = np.isfinite(numbers) if not clean else np.broadcast_to(True, numbers.shape)
        valid = finite[:, -1].copy()
        if self.columns.form == "members":
            whole = finite[:, :-1]
            valid &= whole.any(axis=1) & ~np.isinf(forecasts).any(axis=1)
            self.repairs.missing += int((valid & ~whole.all(axis=1)).sum())
        else:
            valid &= finite[:, :-1].all(axis=1)
            if self.columns.form == "normal":
                with np.errstate(invalid="ignore"):
                    valid &= forecasts[:, 1] >= 0
        for row in np.flatnonzero(~valid).tolist():
            self.problems.add(Place(before + row + 1, None), self._complaint(numbers[row]), file=file)
        rows = np.flatnonzero(valid)
        outcomes = numbers[:, -1]
        if len(rows) < len(numbers):
            kept = {name: _some(column, valid) for name, column in kept.items()}
            forecasts = forecasts[rows]
            outcomes = outcomes[rows]
        if self.columns.form == "quantiles":
            falls = forecasts[:, 1:] < forecasts[:, :-1]
            if falls.any():
                crossing = falls.any(axis=1)
                self.repairs.crossing += int(crossing.sum())
                forecasts[crossing] = np.sort(forecasts[crossing], axis=1)
        return NumberChunk(forecasts, np.ascontiguousarray(outcomes), kept)

    def _complaint(self, row: Array) -> str:
        """Return what is wrong with a row, by column."""
        names = [*self.columns.forecast, self.columns.outcome]
        wrong = [name for name, cell in zip(names, row.tolist(), strict=True) if not np.isfinite(cell)]
        if self.columns.form == "members" and self.columns.outcome not in wrong and not np.isinf(row).any():
            return "no member is a number."
        if wrong:
            return f"{wrong[0]} is missing, infinite or not a number."
        return f"{names[1]} is {row[1]:g}, expected a standard deviation of 0 or more."


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _numbers(column: NDArray[Any]) -> Array:
    """Return an array's cells as numbers, NaN where they are none."""
    if column.dtype.kind in "iuf":
        return column.astype(np.float64)
    found = np.full(len(column), np.nan)
    for row, cell in enumerate(column.tolist()):
        if isinstance(cell, int | float) and not isinstance(cell, bool):
            found[row] = cell
    return found


def _some(column: Any, valid: NDArray[np.bool_]) -> Any:
    return column[valid] if isinstance(column, np.ndarray) else column.filter(library("pyarrow").array(valid))

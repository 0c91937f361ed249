"""What a row says: a forecast that opens a round, an outcome that closes one, and what is to be kept beside them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.exceptions import FileError, ForecastError, OutcomeError, TreeCalError
from treecal.geometry import ConvexSet, Simplex, order_of, read_forecast, read_forecast_rows
from treecal.io import Block, Decoder, check_columns, class_labels, listed, plain


class News(NamedTuple):
    """What a row says."""

    opens: bool
    """Whether it asks for a forecast."""
    forecast: Array | None
    """The model's forecast, for correctors."""
    id: str | None
    """The name of the round it opens."""
    group: Hashable
    closes: str | None
    """The name of the round whose outcome it brings, if that is another one."""
    outcome: Array | None
    row: dict[str, Any]
    """Its columns, as JSON values, without what is said of another round."""
    told: dict[str, Any]
    """Those that belong to the round whose outcome it brings, if that is another one."""
    other: dict[str, Any]
    """Those of `row` that are neither forecast, outcome nor id."""
    sought: str = ""
    """Columns of a forecast that it does not have."""
    due: float | None = None
    """The last moment at which the outcome of the round it opens counts."""
    now: float | None = None
    """What time it is."""

    def labelled(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return a line of JSON on the forecast of its round with its id and its other columns."""
        name = {} if self.id is None else {"id": self.id}
        return {"round": line["round"]} | name | line | ({"row": self.other} if self.other else {})


class Batch(NamedTuple):
    """What rows say each of which has a forecast and its outcome; `plain` are those of which this is all there is."""

    plain: Any
    forecasts: Array
    outcomes: Array
    groups: list[Hashable] | None
    ids: list[str | None] | None
    row: dict[str, list[Any]]
    other: tuple[str, ...]
    """The columns of `row` that are neither forecast, outcome nor id."""

    def of(self, rows: slice) -> Batch:
        """Return some of the rows."""
        return Batch(
            self.plain[rows],
            self.forecasts[rows],
            self.outcomes[rows],
            None if self.groups is None else self.groups[rows],
            None if self.ids is None else self.ids[rows],
            {name: column[rows] for name, column in self.row.items()},
            self.other,
        )


NOTHING = News(True, None, None, None, None, None, {}, {}, {})


@dataclass(frozen=True)
class Reader:
    """Which columns of a row hold what; without `id`, rounds have no names, and follow each other.

    Examples
    --------
    >>> reader = Reader(Decoder(Simplex(classes=["rain", "sun"]), outcome=["sky"]), ("sky",), corrects=True, id="id")
    >>> news = reader.read({"id": 42, "p_rain": 0.5, "p_sun": 0.5, "city": "Oslo"})
    >>> news.opens, news.id, news.other, news.outcome
    (True, '42', {'city': 'Oslo'}, None)
    >>> reader.read({"outcome_for": "42", "sky": "sun"}).closes
    '42'
    """

    decoder: Decoder
    outcome: tuple[str, ...]
    """The columns of the outcome; none if they are chosen by the first row."""
    corrects: bool
    """Whether rows hold a model's forecasts."""
    id: str | None = None
    outcome_for: str = "outcome_for"
    by: tuple[str, ...] = ()
    overlapping: bool = False
    """Whether a row is in one group for each column of `by`, not in one for all of them."""
    added: tuple[str, ...] = ()
    """Columns that the output has beside the rows' own."""
    named: Sequence[str] = field(default=())
    """Columns that a table must have, because they were named."""
    due: str | None = None
    now: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read: none for all of them."""
        return () if self.corrects or self.id is not None or self.added else self.decoder.columns

    def check(self, source: str, there: Sequence[str]) -> None:
        """Raise an error if a table lacks the columns to read."""
        only_outcomes = {*there} <= {self.outcome_for, *self.outcome, self.now}  # which need no ids of their own
        check_columns(source, there, [name for name in self.named if not (only_outcomes and name == self.id)])
        self._check_room(there, what=source)
        if self._in_order:
            self.decoder.check(source, there)
        else:
            self._check_together(source, there, self.decoder.forecast_columns(there) if self.corrects else ())

    def check_first(self, source: str, rows: Sequence[dict[str, Any]]) -> None:
        """Raise an error if the first rows of a file without a header lack columns that such rows need."""
        if len(rows) < 2:
            return
        there = list(dict.fromkeys(name for row in rows for name in row))
        self._check_room(there, what=source)
        if self._in_order:
            check_columns(source, there, self.outcome)
            return
        found = [self.decoder.forecast_columns(row) for row in rows] if self.corrects else []
        forecast = next((columns for columns in found if any(name in there for name in columns)), ())
        self._check_together(source, there, forecast)
        opening = [row for row in rows if any(name in row for name in forecast)]
        stray = [row for row in rows if not {self.id, self.outcome_for, *forecast} & {*row}]
        if self.id not in there and stray and not self.corrects:
            check_columns(source, there, [str(self.id)], remedy="name it with --id.")
        if any({*self.outcome} <= {*row} for row in stray) and all(self.id in row for row in opening):
            check_columns(source, there, [self.outcome_for], remedy="name it with --outcome-for.")

    @property
    def _in_order(self) -> bool:
        """Whether rows are outcomes, one after the other."""
        return not self.corrects and self.id is None

    def _check_together(self, source: str, there: Sequence[str], forecast: Sequence[str]) -> None:
        """Raise an error unless forecasts, ids and outcomes can be put together from these columns."""
        named = self.id in there
        closes = self.outcome_for in there
        told = {*self.outcome} <= {*there}
        if self.corrects and not forecast and not closes:
            raise FileError(
                f"{source} has no probabilities: looked for {self.decoder.sought()}; it has {listed(there)}.",
                hint="name them with --forecast.",
            )
        if forecast:
            check_columns(source, there, [*forecast, *self.by])
        # Without ids a forecast's outcome is in its row, or in the next one.
        by_id = closes or (self.id in self.named and not told) if forecast else not closes
        if not named and by_id:
            check_columns(source, there, [str(self.id)], remedy="name it with --id.")
        if closes or (forecast and not named):
            check_columns(source, there, self.outcome, remedy="name it with --outcome.")

    def complaint(self, row: Any, error: TreeCalError) -> TreeCalError:
        """Return what is wrong with a row, and the ids it has, by which it can be found."""
        text = error.message
        if isinstance(error, OutcomeError | ForecastError):
            round_ = type(error).at(error.round, error.problem)
            if text == round_.message:  # of a round, whose number no row has, and not of an id
                text = f"{error.what} {error.problem}"
        cells = {name: row.get(name) for name in (self.id, self.outcome_for)} if isinstance(row, dict) else {}
        ids = {name: repr(_text("", value)) for name, value in cells.items() if isinstance(value, str | int | float)}
        if self.id is not None and not any(value in text for value in ids.values()):
            text = "".join(f"{name} {value}: " for name, value in ids.items()) + text
        return TreeCalError(text, hint=error.hint)

    def read(self, row: Any) -> News:
        """Return what a row says, all of it checked, or raise what is wrong with it."""
        if self._in_order:
            return self._only_outcome(row)
        if not isinstance(row, dict):
            wanted = '{"forecast": [0.2, 0.8], "outcome": "sun"}' if self.corrects else f'{{"{self.id}": "42"}}'
            raise OutcomeError(f"it is not an object, expected one such as {wanted}.", hint=csv_hint(row))
        self._check_room(row, what="it")
        name = self._name(row, self.id)
        earlier = self._name(row, self.outcome_for)
        if earlier is not None and earlier == name:
            earlier = None
        columns = self.decoder.forecast_columns(row) if self.corrects else ()
        cells = [row[column] for column in columns if column in row]
        opens = name is not None if not self.corrects else any(cell is not None for cell in cells)
        if self.corrects and cells and earlier is None:
            opens = True  # what is missing is named
        told = [column for column in self.outcome if row.get(column) is not None]
        if earlier is None and not opens and not told:
            raise OutcomeError(f"it has neither {self._wanted}, only {', '.join(row) or 'nothing'}.")
        if earlier is not None and opens and name is None:
            raise OutcomeError(
                f"it has a forecast beside the outcome for {earlier!r}, and no {self.id} of its own.",
                hint=f"give it {self.id}, or a row of its own.",
            )
        # Without a name the outcome is in the row or in the next one, and a column that is there is not empty.
        expected = earlier is not None or not opens or (name is None and any(c in row for c in self.outcome))
        b = self._forecast(row) if opens and self.corrects else None
        y = self.decoder.outcome(row) if told or expected else None
        due, now = self._times(row) if opens else (None, _moment(self.now, row))
        group = self._group(row) if opens else None
        kept = plain(row)
        kept.pop(self.outcome_for, None)
        outcome = {column: kept[column] for column in self.outcome if column in kept}
        if not opens:
            said = {column: value for column, value in kept.items() if column not in (*columns, self.id)}
            return News(False, None, None, None, earlier, y, kept, said, said, self.decoder.sought(), None, now)
        if earlier is not None or y is None:  # its own outcome is still to come
            kept = {column: value for column, value in kept.items() if column not in outcome}
        for column in columns:
            if isinstance(kept.get(column), dict):
                order = order_of(class_labels(self.decoder.space), list(kept[column]))
                kept[column] = [kept[column][name] for name in order or ()]
        used = (*columns, *self.outcome, self.id)
        other = {column: value for column, value in kept.items() if column not in used}
        told_of = outcome if earlier is not None else {}
        return News(True, b, name, group, earlier, y, kept, told_of, other, "", due, now)

    def read_block(self, block: Block) -> Batch | None:
        """Return what rows say that can be read by column; None if none can."""
        columns = block.columns
        if columns is None or not self.corrects or self.due or self.now or len(self.outcome) != 1:
            return None
        (outcome,) = self.outcome
        try:
            used = self.decoder.forecast_columns(columns)
            if (
                not used
                or any(name not in columns for name in (*used, outcome, *self.by))
                or {*self.added} & {*columns}
            ):
                return None
            found, plain = self.decoder.forecasts_of(columns, used)
            classes = self.decoder.classes_of(columns[outcome])
            plain = plain & (classes >= 0)
            if plain.any():
                found[plain] = read_forecast_rows(self.decoder.space, found[plain], tolerance=self.decoder.tolerance)
        except TreeCalError:  # which a row by itself explains
            return None
        if (closes := columns.get(self.outcome_for)) is not None:
            plain = plain & np.array([cell is None for cell in closes])
        ids = columns.get(self.id) if self.id is not None else None
        if ids is not None:
            plain = plain & np.array([cell is None or type(cell) is str for cell in ids])
        groups = self._groups([columns[name] for name in self.by])
        if groups is not None:
            plain = plain & np.array([group is not None for group in groups])
        row = {name: _plain_cells(cells) for name, cells in columns.items() if name != self.outcome_for}
        other = tuple(name for name in row if name not in (*used, outcome, self.id))
        return Batch(plain, found, np.eye(self.decoder.space.dim)[classes], groups, ids, row, other)

    def _groups(self, columns: list[list[Any]]) -> list[Hashable] | None:
        """Return the group of each row, None for one that has to be read by itself; None without groups."""
        if not columns:
            return None
        found: list[Hashable] = []
        for row in zip(*columns, strict=True):
            if any(type(cell) is not str for cell in row):
                found.append(None)
            elif self.overlapping:
                found.append(tuple(f"{name}={cell}" for name, cell in zip(self.by, row, strict=True)))
            else:
                found.append(row[0] if len(row) == 1 else row)
        return found

    @property
    def _wanted(self) -> str:
        if self.corrects:
            return f"probabilities ({self.decoder.sought()}) nor {', '.join(self.outcome)}"
        return f"{self.id} nor {self.outcome_for}"

    def _only_outcome(self, row: Any) -> News:
        kept: dict[str, Any] = {}
        if isinstance(row, dict):
            self._check_room(row, what="it")
            if row.get(self.outcome_for) is not None:
                raise OutcomeError(
                    f"it has {self.outcome_for}, but rounds have no names here.",
                    hint="--id id, and a row with id for each forecast.",
                )
            kept = plain(row) if self.added else {}
        y = self.decoder.outcome(row)
        if self.added and not isinstance(row, dict):
            kept = {"outcome": plain(row)}
        return News(False, None, None, None, None, y, kept, kept, kept)

    def _forecast(self, row: dict[str, Any]) -> Array:
        """Return the model's forecast; probabilities that were rounded sum to 1 again."""
        b = self.decoder.forecast(row)
        space = self.decoder.space
        return read_forecast(space, b, 1, self.decoder.tolerance) if isinstance(space, Simplex) else b

    def _check_room(self, there: Any, *, what: str) -> None:
        if taken := [name for name in self.added if name in there]:
            raise FileError(f"{what} has a column {taken[0]}, which the output needs.", hint="rename it.")

    def _name(self, row: dict[str, Any], column: str | None) -> str | None:
        value = None if column is None else row.get(column)
        return None if value is None else _text(str(column), value)

    def _times(self, row: dict[str, Any]) -> tuple[float | None, float | None]:
        """Return when the outcome of a row's forecast is due, and what time it is."""
        due = _moment(self.due, row)
        now = _moment(self.now, row)
        if due is not None and now is None:
            raise OutcomeError(f"{self.now} is missing, expected what time it is, beside {self.due}.")
        if due is not None and now is not None and due < now:
            raise OutcomeError(f"{self.due} is {row[str(self.due)]}, expected a time from {row[str(self.now)]} on.")
        return due, now

    def _group(self, row: dict[str, Any]) -> Hashable:
        """Return the group of a row: a text, or several."""
        for name in self.by:
            if row.get(name) is None:
                raise OutcomeError(f"{name} is missing, expected the group.")
        found = tuple(_text(name, row[name]) for name in self.by)
        if self.overlapping:
            return tuple(f"{name}={value}" for name, value in zip(self.by, found, strict=True))
        return found[0] if len(found) == 1 else found or None


def _plain_cells(cells: list[Any]) -> list[Any]:
    """Return cells as JSON values."""
    if not {*map(type, cells)} <= {str, type(None)}:
        return [plain(cell) for cell in cells]
    if "".join(filter(None, cells)).isascii():
        return cells
    return [cell if cell is None or cell.isascii() else plain(cell) for cell in cells]


def _moment(column: str | None, row: dict[str, Any]) -> float | None:
    """Return the time in a column: a number, or the seconds from 1970 to a time in ISO 8601, by default in UTC.

    Examples
    --------
    >>> [_moment("due", {"due": due}) for due in (7, "1970-01-02", "1970-01-01T02:00+02:00")]
    [7.0, 86400.0, 0.0]
    """
    value = None if column is None else row.get(column)
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, date) else str(value)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
        with suppress(ValueError):
            moment = datetime.fromisoformat(text)
            number = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(number) or isinstance(value, bool):
        raise OutcomeError(f"{column} is {str(value)[:60]!r}, expected a number, or a time such as 2026-01-31T09:30.")
    return number


def _text(name: str, value: Any) -> str:
    """Return a name as text; integers become floats in a column where one is missing."""
    if isinstance(value, list | dict):
        raise OutcomeError(f"{name} is {str(value)[:60]}, expected text or a number.")
    return str(int(value) if isinstance(value, float) and value % 1 == 0 else value)


def csv_hint(row: Any) -> str | None:
    """Return a hint where a line of standard input, which was to be JSON, looks like CSV."""
    return "if it is CSV, --kind csv." if isinstance(row, str) and any(mark in row for mark in ",;\t") else None


def names_of(space: ConvexSet, prefix: str) -> tuple[str, ...]:
    """Return names for columns of points of a set: by class, or by number.

    Examples
    --------
    >>> names_of(Simplex(classes=["rain", "sun"]), "corrected")
    ('corrected_rain', 'corrected_sun')
    """
    return tuple(f"{prefix}_{name}" for name in class_labels(space) or range(1, space.dim + 1))

"""Forecasts, outcomes and streams as they are given, checked before they are sent or spooled."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import NDArray

from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.serve import FAR, MOST_ROWS, NewForecast, NewOutcome, NewStream, Part, Shape, Watch

Vector = Sequence[float] | Mapping[str, Any] | NDArray[Any]
"""A model's forecast: numbers in the order of the classes, or by the names of the classes."""
Label = int | float | str | Sequence[float] | np.integer[Any] | NDArray[Any]
"""An outcome: a class by its index or name, a number, or a point of the set."""
Due = float | datetime
"""A moment: seconds since 1970, or a datetime with a time zone."""
Given = str | Mapping[str, Any]
"""A name, or `{"name": ..., "options": {...}}`."""
T = TypeVar("T")
_LONGEST_ID = 200
_MOST_NUMBERS = 200_000  # in a request: some 4 MB
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # which the server refuses: in the spool it would be found out late


def new_forecast(
    p: Vector | None,
    id: str | None,  # noqa: A002
    tags: Mapping[str, str] | None,
    due: Due | None,
    row: int | None = None,
) -> NewForecast:
    """Return a forecast to send; an id is made if there is none."""
    if isinstance(due, datetime) and due.tzinfo is not None:
        due = due.timestamp()
    if due is not None and not (isinstance(due, int | float) and abs(due) <= FAR):
        expected = "seconds since 1970, such as time.time() + 86400, or a datetime with a time zone"
        raise ParameterError.expected("due", due, expected)
    words = {} if tags is None else dict(tags)
    if not all(isinstance(word, str) for pair in words.items() for word in pair):
        raise ParameterError.expected(_name("tags", row), tags, "names and values as text")
    return NewForecast(uuid4().hex if id is None else _id(id, row), _point(p, row), words, due)


def new_forecasts(
    P: Iterable[Vector],
    ids: Iterable[str] | None,
    tags: Iterable[Mapping[str, str]] | None,
    due: Due | None,
) -> list[NewForecast]:
    """Return forecasts to send."""
    points = list(P)
    given = zip(points, _column("ids", ids, len(points)), _column("tags", tags, len(points)), strict=True)
    return [new_forecast(p, name, words, due, row) for row, (p, name, words) in enumerate(given)]


def in_requests(new: list[NewForecast]) -> Iterator[list[NewForecast]]:
    """Yield as many rows as a request may have; fewer, if they are long."""
    longest = max((len(row.p) for row in new if row.p is not None), default=1)
    most = max(min(MOST_ROWS, _MOST_NUMBERS // max(longest, 1)), 1)
    for start in range(0, len(new), most):
        yield new[start : start + most]


def _column(name: str, given: Iterable[T] | None, count: int) -> list[T] | list[None]:
    if given is None:
        return [None] * count
    found = list(given)
    if len(found) != count:
        raise ParameterError(f"{name} has {len(found)} entries, expected one for each of the {count} forecasts.")
    return found


def new_outcomes(rows: Iterable[tuple[str, str, Label]], amend: bool) -> list[NewOutcome]:
    """Return outcomes to send."""
    found = []
    for at, row in enumerate(rows):
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 3:
            raise ParameterError.expected(f"outcomes[{at}]", row, "a stream, an id and an outcome")
        stream, name, y = row
        if not isinstance(stream, str) or not stream:
            raise ParameterError.expected(f"stream[{at}]", stream, "the name of a stream")
        found.append(NewOutcome(stream, _id(name, at), _outcome(y, at), amend))
    return found


def _name(name: str, row: int | None) -> str:
    return name if row is None else f"{name}[{row}]"


def _id(given: Any, row: int | None) -> str:
    if not isinstance(given, str) or not 1 <= len(given) <= _LONGEST_ID or _CONTROL.search(given):
        expected = f"text of 1 to {_LONGEST_ID} characters, in one line"
        raise ParameterError.expected(_name("id", row), given, expected)
    return str(given)


def _point(p: Any, row: int | None) -> list[float] | dict[str, float | str | list[float]] | None:
    if p is None:
        return None
    try:
        if isinstance(p, Mapping):
            return {str(name): _entry(name, x) for name, x in p.items()}
        return [_finite(x) for x in (p.tolist() if hasattr(p, "tolist") else p)]
    except (TypeError, ValueError):
        raise ForecastError(f"{_name('p', row)} is {p!r}, expected finite numbers, one for each class.") from None


def _entry(name: Any, x: Any) -> float | str | list[float]:
    """Return what a forecast says under a name: a number; or of numbers the members of an ensemble, or the family."""
    if name == "family" and isinstance(x, str):
        return x
    return [_finite(each) for each in x] if name == "members" else _finite(x)


def _finite(x: Any) -> float:
    if isinstance(x, str) or not math.isfinite(x):
        raise ValueError
    return float(x)


def _outcome(y: Any, row: int | None) -> int | float | str | list[float]:
    if isinstance(y, str):
        return str(y)
    try:
        if not isinstance(y, bool):
            return operator.index(y)
    except TypeError:
        pass
    try:
        if isinstance(y, float) or getattr(y, "ndim", None) == 0:
            return _finite(y)
        if isinstance(y, Sequence) or getattr(y, "ndim", 0) == 1:
            return [_finite(x) for x in (y.tolist() if hasattr(y, "tolist") else y)]
    except (TypeError, ValueError):
        pass
    raise OutcomeError(
        f"{_name('outcome', row)} is {y!r}, expected the index or the name of a class, or a point of the set."
    )


def settings(kind: type[T], **given: Any) -> T:
    """Return a stream to create, or settings to change; the server says whether they can be."""
    given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    if isinstance(given.get("monitor"), bool):
        given["monitor"] = {} if given["monitor"] else None
    for name, part in (("set", Shape), ("corrector", Part), ("forecaster", Part), ("monitor", Watch)):
        if given.get(name) is not None:
            given[name] = _part(name, given[name], part)
    for name in ("tags", "group"):
        if name in given:
            given[name] = list(given[name])
    if given.get("classes") is not None:
        given["classes"] = [str(label) for label in given["classes"]]
    try:
        return msgspec.convert(given, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        what = "a stream" if kind is NewStream else "a change of settings"
        raise ParameterError(f"this is not {what}: {error}.") from None


def _part(what: str, given: Given, kind: type[T]) -> T:
    try:
        return msgspec.convert({"name": given} if isinstance(given, str) else dict(given), kind)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ParameterError(f"{what} is {given!r}: {error}.") from None

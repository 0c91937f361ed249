"""The arguments of a call: ids, times, forecasts, outcomes, groups and weights, checked once; errors name the id."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal._validate import sample_weight
from treecal.correctors import Corrector, Group, check_weight, valid_forecast, valid_forecasts, valid_groups
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, UnsupportedError
from treecal.geometry import ConvexSet, columns, frozen, read_outcome, read_outcome_rows
from treecal.late._pool import Id, Thing


def read_id(given: Any) -> Id:
    """Return an id, or raise unless it is text, an integer of 64 bits, or a tuple of them."""
    if isinstance(given, tuple) and given and not any(isinstance(part, tuple) for part in given):
        return tuple(read_id(part) for part in given)  # type: ignore[misc] # of no tuples
    if isinstance(given, str):
        return str(given)
    if isinstance(given, int | np.integer) and not isinstance(given, bool) and -(2**63) <= given < 2**63:
        return int(given)
    raise ParameterError.expected("id", given, "text, an integer of 64 bits, or a tuple of them")


def read_time(name: str, given: Any) -> float | None:
    """Return a time, or raise unless it is a finite number."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not math.isfinite(given):
        raise ParameterError.expected(name, given, "a finite number")
    return float(given)


def ids_of(given: Any) -> list[Id]:
    """Return ids, or raise unless there is a sequence of them.

    Examples
    --------
    >>> ids_of(["order 17", ("store", 4)])
    ['order 17', ('store', 4)]
    """
    return [read_id(each) for each in _one_each("ids", given)]


def forecast_of(thing: Thing, forecast: Any, named: Id) -> Array | None:
    """Return the forecast to correct, None for a forecaster, or raise."""
    if not isinstance(thing, Corrector):
        if forecast is not None:
            raise ParameterError("a forecaster takes no forecast.", hint="predict(id=...).")
        return None
    if forecast is None:
        raise ParameterError("there is no forecast to correct.", hint="predict(b, id=...).")
    try:
        return valid_forecast(thing, forecast)
    except ForecastError as error:
        raise error.of(named) from None


def forecasts_of(thing: Thing, forecasts: Any, ids: list[Id]) -> Sequence[Array | None]:
    """Return the forecast of each id, or raise."""
    if forecasts is None or not isinstance(thing, Corrector):
        return [forecast_of(thing, forecasts, named) for named in ids]
    rows = _one_each("forecasts", forecasts, len(ids))
    try:
        return [frozen(row) for row in valid_forecasts(thing, rows)]
    except ForecastError as error:
        raise error.of(ids[error.round - thing.rounds - 1]) if error.problem else error from None


def outcome_of(space: ConvexSet, outcome: Any, named: Id) -> Array:
    """Return an outcome, perhaps the caller's own array, or raise."""
    try:
        return read_outcome(space, outcome, 1)
    except OutcomeError as error:
        raise error.of(named) from None


def outcomes_of(space: ConvexSet, outcomes: Any, ids: list[Id]) -> Array:
    """Return the outcome of each id, `(n, dim)`, or raise."""
    rows = _one_each("outcomes", outcomes, len(ids))
    try:
        return read_outcome_rows(space, rows)
    except OutcomeError as error:
        if error.problem:
            raise error.of(ids[error.round - 1]) from None
        if columns(rows) is not None:
            raise
    # They do not make an array; the first that is no outcome says why.
    return np.array([outcome_of(space, row, named) for row, named in zip(rows, ids, strict=True)])


def groups_of(thing: Thing, groups: Any, count: int) -> Sequence[Group]:
    """Return the group of each of so many forecasts, or raise."""
    if groups is None:
        return [None] * count
    given = _one_each("groups", groups, count)
    if isinstance(thing, Corrector):
        return valid_groups(thing, given, count)
    if any(group is not None for group in given):
        raise ParameterError("a forecaster takes no group.", hint="predict(id=...).")
    return list(given)


def weight_of(thing: Thing, given: Any, named: Id) -> float:
    """Return the weight of an outcome, or raise."""
    if isinstance(given, float) and given == 1.0:
        return 1.0
    weight = sample_weight(given, f"weight of id {named!r}")
    if weight != 1.0:
        if not isinstance(thing, Corrector):
            raise UnsupportedError("forecasters do not support sample weights.", hint="leave weight out.")
        check_weight(thing, weight)
    return weight


def weights_of(thing: Thing, weights: Any, ids: list[Id]) -> list[float] | None:
    """Return the weight of each outcome, None if all are 1, or raise."""
    if weights is None:
        return None
    given = np.asarray(_one_each("weights", weights, len(ids))).tolist()
    found = [weight_of(thing, each, named) for each, named in zip(given, ids, strict=True)]
    return None if all(weight == 1.0 for weight in found) else found


def _one_each(name: str, given: Any, count: int | None = None) -> Any:
    """Return what is given for each id, or raise unless it has an order and there are so many."""
    unfit = isinstance(given, str | bytes | Mapping | Set) or (name == "ids" and columns(given) is not None)
    size = 0
    try:
        given = given if unfit or hasattr(given, "__len__") else list(given)
        size = len(given)
    except TypeError:  # it has no length, as an array without dimensions
        unfit = True
    if unfit:
        what = repr(given) if isinstance(given, str | bytes | int | float | None) else f"a {type(given).__name__}"
        raise ParameterError(
            f"{name} is {what}, expected a sequence of them, such as a list.", hint="predict and update take one."
        )
    if count is not None and size != count:
        raise ParameterError(f"there are {count} ids and {size} {name}, expected one for each id.")
    return given

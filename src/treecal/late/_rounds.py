"""Rounds by id: those that await their outcome, those that are closed, and both as arrays."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from treecal._states import check_array, check_count, check_names
from treecal._typing import Array, Integers
from treecal.correctors._batch import Group
from treecal.correctors._names import saved_names
from treecal.exceptions import IdError, ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet
from treecal.geometry._convex import frozen
from treecal.geometry._outcomes import read_outcome

Id = str | int | tuple[str | int, ...]
"""What names a round."""
Arrival = Literal["learned", "replayed", "late", "conflict", "unknown"]
"""What became of an outcome."""
REMEMBERED = 100_000
"""Closed rounds whose ids are remembered, the latest."""
VOID = -1
POINT = -2

Outcome = int | bytes
"""An outcome in brief: the index of a class, or the bytes of any other point; `VOID` where none came in time."""


class Pending(NamedTuple):
    """A round that awaits its outcome."""

    order: int  # rounds opened before it
    forecast: Array | None  # the model's, for a corrector
    group: Group
    told: Array | None  # what its copy was asked to correct: the forecast, or what a shared corrector made of it
    announced: Forecast
    due: float | None
    copy: int | None


class Asked(NamedTuple):
    """A round that is about to be opened."""

    order: int
    forecast: Array | None
    group: Group
    due: float | None


class Counts(NamedTuple):
    """How many rounds were opened, learned and void; outcomes that came for void ones; and amendments."""

    opened: int = 0
    learned: int = 0
    void: int = 0
    too_late: int = 0
    amended: int = 0


PendingRounds = OrderedDict[Id, Pending]
ClosedRounds = OrderedDict[Id, tuple[Outcome, ...]]
"""The outcome of each round, followed by what it was amended to."""


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


def briefs(outcomes: Array) -> list[Outcome]:
    """Return the outcomes in the rows of an array in brief."""
    tops = outcomes.argmax(axis=1)
    corners = (outcomes.max(axis=1, initial=0.0) == 1) & (np.count_nonzero(outcomes, axis=1) == 1)
    pairs = zip(tops.tolist(), corners.tolist(), strict=True)
    return [top if corner else (outcomes[i] + 0.0).tobytes() for i, (top, corner) in enumerate(pairs)]


def whole(outcome: Outcome, dim: int) -> Array:
    """Return the outcome that `briefs` was given."""
    if isinstance(outcome, bytes):
        return np.frombuffer(outcome).copy()
    return np.asarray(np.eye(1, dim, outcome)[0])


def arrival(outcomes: tuple[Outcome, ...] | None, outcome: Outcome) -> Arrival:
    """Return what another outcome is to a round that has these, or to one that is not known."""
    if outcomes is None:
        return "unknown"
    if outcomes[-1] == VOID:
        return "late"
    return "replayed" if outcome in outcomes else "conflict"


def refusal(named: Id, why: Arrival) -> IdError:
    """Return the error for an outcome that is not learned."""
    if why == "unknown":
        problem = f"is not known: nothing was announced under it, or more than {REMEMBERED:,} rounds were closed since."
        return IdError.of(named, "unknown", problem, hint="1 and '1' are two ids.")
    if why == "late":
        return IdError.of(named, "void", "is void: its outcome came after it was due, or too many others were waiting.")
    return IdError.of(named, "conflict", "has another outcome.", hint="amend(id, y) keeps it as an amendment.")


def taken(named: Id, problem: str, hint: str = "use an id once.") -> IdError:
    """Return the error for a forecast under an id that is in use."""
    return IdError.of(named, "taken", problem, hint=hint)


def packed(values: Iterable[Any]) -> Any:
    """Return JSON values as the bytes of an array: a snapshot's header is not the place for a million of them."""
    try:
        text = json.dumps(list(values), allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise SnapshotError(f"a group cannot be kept: {error}.", hint="use text, numbers, or tuples of them.") from None
    return np.frombuffer(text.encode(), np.uint8).copy()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds a {type(value).__name__}")


def unpacked(name: str, array: Any) -> list[Any]:
    """Return the values that `packed` was given, or raise."""
    check_array(name, array, np.shape(array)[:1], np.uint8)
    try:
        values = json.loads(array.tobytes(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise SnapshotError(f"{name} cannot be read.") from None
    if not isinstance(values, list):
        raise SnapshotError(f"{name} is no list.")
    return values


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _ids(name: str, array: Any) -> list[Id]:
    found = [tuple(each) if isinstance(each, list) else each for each in unpacked(name, array)]
    try:
        ids = [read_id(each) for each in found]
    except ParameterError as error:
        raise SnapshotError(f"{name} cannot be: {error.args[0]}") from None
    if len(set(ids)) < len(ids):
        raise SnapshotError(f"{name} are not all different.")
    return ids


def closed_state(closed: ClosedRounds, dim: int) -> dict[str, Any]:
    """Return closed rounds as arrays: of each outcome its class, or `POINT` and a row of `points`."""
    outcomes = [each for one in closed.values() for each in one]
    points = [np.frombuffer(each) for each in outcomes if isinstance(each, bytes)]
    return {
        "ids": packed(closed),
        "outcomes": np.array([POINT if isinstance(each, bytes) else each for each in outcomes], np.int64),
        "lengths": np.array([len(one) for one in closed.values()], np.int64),
        "points": np.array(points).reshape(-1, dim),
    }


def closed_rounds(state: Any, space: ConvexSet) -> ClosedRounds:
    """Return the closed rounds of a state, or raise."""
    check_names("the closed rounds", state, ("ids", "outcomes", "lengths", "points"))
    ids = _ids("the ids of closed rounds", state["ids"])
    lengths, kinds = _whole("the lengths", state["lengths"]), _whole("the outcomes", state["outcomes"])
    points = state["points"]
    if len(lengths) != len(ids) or (lengths < 1).any() or lengths.sum() != len(kinds) or len(ids) > REMEMBERED:
        raise SnapshotError("the closed rounds are not as many as their ids.")
    if len(kinds) and not (kinds.min() >= POINT and kinds.max() < space.dim):
        raise SnapshotError(f"the outcomes are {kinds.min()} to {kinds.max()}, expected classes of {space!r}.")
    check_array("the outcomes' points", points, (int((kinds == POINT).sum()), space.dim))
    rows = iter([read_outcome(space, point, 0).tobytes() for point in points])
    for kind in set(kinds.tolist()) - {VOID, POINT}:
        read_outcome(space, whole(kind, space.dim), 0)
    outcomes: list[Outcome] = [next(rows) if kind == POINT else kind for kind in kinds.tolist()]
    ends = np.cumsum(lengths).tolist()
    found = [tuple(outcomes[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]
    if any(VOID in each and len(each) > 1 for each in found):
        raise SnapshotError("a void round has an outcome.")
    return OrderedDict(zip(ids, found, strict=True))


def pending_state(pending: PendingRounds) -> dict[str, Any]:
    """Return what all kinds of pending rounds have, as arrays."""
    rounds = list(pending.values())
    state = {
        "ids": packed(pending),
        "orders": np.array([each.order for each in rounds], np.int64),
        "dues": packed(each.due for each in rounds),
    }
    if rounds and rounds[0].forecast is not None:
        state["groups"] = packed(each.group for each in rounds)
        state["forecasts"] = np.array([each.forecast for each in rounds])
    return state


def announced_state(forecasts: Sequence[Forecast], dim: int) -> dict[str, Any]:
    """Return forecasts as arrays; one without nodes has node (-1, -1) at each point."""
    none = np.full((1, 2), -1)
    nodes = [none.repeat(len(x), axis=0) if x.nodes is None else x.nodes for x in forecasts]
    return {
        "lengths": np.array([len(x) for x in forecasts], np.int64),
        "points": np.concatenate([np.empty((0, dim)), *(x.points for x in forecasts)]),
        "weights": np.concatenate([np.empty(0), *(x.weights for x in forecasts)]),
        "nodes": np.concatenate([np.empty((0, 2), np.int64), *nodes]),
    }


def announced_forecasts(state: Any, count: int, space: ConvexSet) -> list[Forecast]:
    """Return the forecasts of such a state, or raise."""
    check_names("what was announced", state, ("lengths", "points", "weights", "nodes"))
    lengths = _whole("the lengths", state["lengths"])
    if len(lengths) != count or (lengths < 1).any():
        raise SnapshotError("what was announced is not one forecast for each pending round.")
    size = int(lengths.sum())
    check_array("the points announced", state["points"], (size, space.dim))
    check_array("the weights announced", state["weights"], (size,))
    check_array("the nodes announced", state["nodes"], (size, 2), np.int64)
    found, start = [], 0
    for length in lengths.tolist():
        rows = slice(start, start := start + length)
        nodes = state["nodes"][rows]
        given = None if (nodes == -1).all() else nodes
        found.append(Forecast(state["points"][rows], weights=state["weights"][rows], nodes=given, space=space))
    return found


def pending_rounds(state: Any, counts: Counts, time: float | None, space: ConvexSet, *, corrects: bool) -> Any:
    """Return, for each pending round, its id, order, due, group and forecast, or raise."""
    names = ["ids", "orders", "dues"]
    more = ["groups", "forecasts"] * corrects
    if not (isinstance(state, dict) and "groups" in state):
        more = []
    check_names("the pending rounds", state, [*names, *more])
    ids, orders = _ids("the ids of pending rounds", state["ids"]), _whole("the orders", state["orders"])
    dues = [read_time("due", due) for due in unpacked("the dues", state["dues"])]
    n = len(ids)
    if len(orders) != n or len(dues) != n or (n and corrects and not more):
        raise SnapshotError("the pending rounds are not as many as their ids.")
    if n and not (orders[0] >= 0 and (np.diff(orders) > 0).all() and orders[-1] < counts.opened):
        raise SnapshotError(f"the pending rounds are not in order, or not of {counts.opened} that were opened.")
    if any(due is not None and (time is None or due < time) for due in dues):
        raise SnapshotError(f"a pending round was due before {time}.")
    groups: list[Group] = [None] * n
    forecasts: list[Array | None] = [None] * n
    if more:
        groups = [saved_names([group])[0] for group in unpacked("the groups", state["groups"])]  # which repeat
        shape = np.shape(state["forecasts"])  # of a mixture, a row for each model
        check_array("the pending forecasts", state["forecasts"], (n, *shape[1:-1], space.dim))
        if len(groups) != n:
            raise SnapshotError("the pending rounds are not as many as their groups.")
        for point in state["forecasts"].reshape(-1, space.dim):
            read_outcome(space, point, 0)
        forecasts = [frozen(row) for row in state["forecasts"]]
    return list(zip(ids, orders.tolist(), dues, groups, forecasts, strict=True))


def read_counts(state: Any) -> Counts:
    """Return counts, or raise."""
    check_names("the counts", state, Counts._fields)
    for name, count in state.items():
        check_count(name, count)
    return Counts(**{name: int(count) for name, count in state.items()})


def _whole(name: str, array: Any) -> Integers:
    check_array(name, array, np.shape(array)[:1], np.int64)
    return np.asarray(array)

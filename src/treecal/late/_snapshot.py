"""Rounds as data: their state as arrays, and the rounds of a state once it is found to be valid."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from treecal._states import check_array, check_count, check_names, check_number
from treecal._typing import Array, Integers, Saved
from treecal.correctors import Group, saved_names
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, frozen, read_outcome
from treecal.late._arguments import read_id, read_time
from treecal.late._arrivals import VOID, Outcome, whole
from treecal.late._pool import Id, Pool, announce
from treecal.late._rounds import REMEMBERED, ClosedRounds, Counts, Pending, PendingRounds, Rounds, due_heap

POINT = -2
"""In the place of a class, an outcome that is another point."""


def state_of(rounds: Rounds) -> Saved:
    """Return the state: arrays, JSON values, and dictionaries of them."""
    dim = rounds.space.dim
    pool = rounds.pool
    pending = list(rounds.pending.values())
    state = {
        "counts": rounds.counts._asdict(),
        "time": rounds.time,
        "pending": _pending_state(rounds.pending),
        "closed": _closed_state(rounds.closed, dim),
    }
    if rounds.front is not None:
        state["front"] = rounds.front.get_state()
    if rounds.ledger is not None:
        state["ledger"] = rounds.ledger.get_state()
    if pool is None:
        return state | {"announced": _announced_state([each.announced for each in pending], dim)}
    # What the copies announced follows from their states and what they were asked to correct.
    inner = [each.inner for each in pending if each.inner is not None]
    return state | {
        "copies": {str(i): copy.get_state() for i, copy in enumerate(pool.copies)},
        "holders": np.array([each.copy for each in pending], np.int64),
        "told": np.array(inner).reshape(-1, dim),
    }


def resumed(rounds: Rounds, state: Any) -> Rounds:
    """Return the rounds of a state, or raise unless they are ones that these could become; these are not changed."""
    twin = rounds.fresh()
    space = rounds.space
    own = ["front"] * (twin.front is not None) + ["ledger"] * (twin.ledger is not None)
    own += ["announced"] if twin.pool is None else ["copies", "holders", "told"]
    check_names("the state", state, ["counts", "time", "pending", "closed", *own])
    counts = _counts(state["counts"])
    time = state["time"]
    if time is not None:
        most = float(np.finfo(float).max)
        check_number("the time", time, least=-most, most=most)
    given = _pending_rounds(state["pending"], counts, time, space, corrects=rounds.corrects)
    ids = [named for named, *_ in given]
    n = len(given)
    if twin.front is not None:
        twin.front.set_state(state["front"])
    if twin.ledger is not None:
        twin.ledger.set_state(state["ledger"])
    inners: list[Array | None] = [b for *_, b in given]
    numbers: list[int | None] = [None] * n
    if twin.pool is None:
        announced = _announced_forecasts(state["announced"], n, space)
    else:
        holders = _fill(twin.pool, state, ids)
        if np.shape(state["told"]) != (n * rounds.corrects, space.dim):
            raise SnapshotError("what the copies were asked to correct is not one point for each pending round.")
        if rounds.corrects:
            inners = [frozen(read_outcome(space, row, 0)) for row in state["told"]]
        asked = zip(holders, inners, given, strict=True)
        announced = [announce(twin.pool.copies[i], inner, group) for i, inner, (*_, group, _) in asked]
        numbers = list(holders)
    twin.counts = counts
    twin.time = None if time is None else float(time)
    twin.closed = _closed_rounds(state["closed"], space)
    twin.pending = OrderedDict()
    for (named, order, due, group, b), inner, x, number in zip(given, inners, announced, numbers, strict=True):
        twin.pending[named] = Pending(order, b, group, inner, x, due, number)
    twin.dues = due_heap(twin.pending)
    _check_counts(twin)
    return twin


def _fill(pool: Pool, state: Saved, ids: list[Id]) -> list[int]:
    """Put the copies of a state into a pool; return which of them the pending rounds have."""
    copies, holders = state["copies"], state["holders"]
    check_names("the copies", copies, [str(i) for i in range(len(copies) if isinstance(copies, dict) else 0)])
    numbers = holders.tolist() if isinstance(holders, np.ndarray) and holders.dtype == np.int64 else []
    if len(numbers) != len(ids) or len(set(numbers)) < len(ids) or not set(numbers) <= set(range(len(copies))):
        raise SnapshotError("the pending rounds are not each that of one copy.")
    for i in range(len(copies)):
        copy = pool.new()
        copy.set_state(copies[str(i)])
        pool.copies.append(copy)
    pool.holders = dict(zip(numbers, ids, strict=True))
    for i in set(range(len(copies))) - set(numbers):
        pool.release(i)
    return numbers


def _check_counts(rounds: Rounds) -> None:
    counts = rounds.counts
    n = len(rounds.pending)
    learned = [] if rounds.ledger is None else [rounds.ledger.rounds]
    if rounds.pool is not None:
        learned.append(sum(copy.rounds for copy in rounds.pool.copies))
    if rounds.front is not None:  # which may have learned before, where there is no pool
        front = rounds.front.rounds
        learned.append(front if rounds.pool is not None else min(front, counts.learned))
    agreed = counts.opened == counts.learned + counts.void + n and {*learned} <= {counts.learned}
    if not agreed or len(rounds.closed) > counts.learned + counts.void or n > (rounds.limit or n):
        raise SnapshotError(f"the parts do not agree on {counts.opened} rounds.")
    if any(named in rounds.closed for named in rounds.pending):
        raise SnapshotError("a round is both pending and closed.")


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
        raise SnapshotError(f"{name} cannot be: {error.message}") from None
    if len(set(ids)) < len(ids):
        raise SnapshotError(f"{name} are not all different.")
    return ids


def _closed_state(closed: ClosedRounds, dim: int) -> Saved:
    """Return closed rounds as arrays: of each outcome its class, or `POINT` and a row of `points`."""
    outcomes = [each for one in closed.values() for each in one]
    points = [np.frombuffer(each) for each in outcomes if isinstance(each, bytes)]
    return {
        "ids": packed(closed),
        "outcomes": np.array([POINT if isinstance(each, bytes) else each for each in outcomes], np.int64),
        "lengths": np.array([len(one) for one in closed.values()], np.int64),
        "points": np.array(points).reshape(-1, dim),
    }


def _closed_rounds(state: Any, space: ConvexSet) -> ClosedRounds:
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


def _pending_state(pending: PendingRounds) -> Saved:
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


def _announced_state(forecasts: Sequence[Forecast], dim: int) -> Saved:
    """Return forecasts as arrays; one without nodes has node (-1, -1) at each point."""
    none = np.full((1, 2), -1)
    nodes = [none.repeat(len(x), axis=0) if x.nodes is None else x.nodes for x in forecasts]
    return {
        "lengths": np.array([len(x) for x in forecasts], np.int64),
        "points": np.concatenate([np.empty((0, dim)), *(x.points for x in forecasts)]),
        "weights": np.concatenate([np.empty(0), *(x.weights for x in forecasts)]),
        "nodes": np.concatenate([np.empty((0, 2), np.int64), *nodes]),
    }


def _announced_forecasts(state: Any, count: int, space: ConvexSet) -> list[Forecast]:
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


def _pending_rounds(state: Any, counts: Counts, time: float | None, space: ConvexSet, *, corrects: bool) -> Any:
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


def _counts(state: Any) -> Counts:
    """Return counts, or raise."""
    check_names("the counts", state, Counts._fields)
    for name, count in state.items():
        check_count(name, count)
    return Counts(**{name: int(count) for name, count in state.items()})


def _whole(name: str, array: Any) -> Integers:
    check_array(name, array, np.shape(array)[:1], np.int64)
    return np.asarray(array)

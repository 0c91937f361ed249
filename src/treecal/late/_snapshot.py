"""A desk as data: its state, and the desk of a state once it is found to be valid."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from treecal._states import check_names, check_number
from treecal._typing import Array
from treecal.exceptions import SnapshotError
from treecal.geometry._convex import frozen
from treecal.geometry._outcomes import read_outcome
from treecal.late._desk import Desk, due_heap
from treecal.late._pool import Pool, announce
from treecal.late._rounds import (
    Id,
    Pending,
    announced_forecasts,
    announced_state,
    closed_rounds,
    closed_state,
    pending_rounds,
    pending_state,
    read_counts,
)


def state_of(desk: Desk) -> dict[str, Any]:
    """Return the state: arrays, JSON values, and dictionaries of them."""
    dim, pool, rounds = desk.space.dim, desk.pool, list(desk.pending.values())
    state = {
        "counts": desk.counts._asdict(),
        "time": desk.time,
        "pending": pending_state(desk.pending),
        "closed": closed_state(desk.closed, dim),
    }
    if desk.front is not None:
        state["front"] = desk.front.get_state()
    if desk.ledger is not None:
        state["ledger"] = desk.ledger.get_state()
    if pool is None:
        return state | {"announced": announced_state([each.announced for each in rounds], dim)}
    # What the copies announced follows from their states and what they were told.
    told = [each.told for each in rounds if each.told is not None]
    return state | {
        "copies": {str(i): copy.get_state() for i, copy in enumerate(pool.copies)},
        "holders": np.array([each.copy for each in rounds], np.int64),
        "told": np.array(told).reshape(-1, dim),
    }


def resumed(desk: Desk, state: Any) -> Desk:
    """Return the desk of a state, or raise unless it is one that this desk could have; it is not changed."""
    twin, space = desk.fresh(), desk.space
    own = ["front"] * (twin.front is not None) + ["ledger"] * (twin.ledger is not None)
    own += ["announced"] if twin.pool is None else ["copies", "holders", "told"]
    check_names("the state", state, ["counts", "time", "pending", "closed", *own])
    counts, time = read_counts(state["counts"]), state["time"]
    if time is not None:
        most = float(np.finfo(float).max)
        check_number("the time", time, least=-most, most=most)
    given = pending_rounds(state["pending"], counts, time, space, corrects=desk.corrects)
    ids, n = [named for named, *_ in given], len(given)
    if twin.front is not None:
        twin.front.set_state(state["front"])
    if twin.ledger is not None:
        twin.ledger.set_state(state["ledger"])
    tolds: list[Array | None] = [b for *_, b in given]
    numbers: list[int | None] = [None] * n
    if twin.pool is None:
        announced = announced_forecasts(state["announced"], n, space)
    else:
        holders = _fill(twin.pool, state, ids)
        if np.shape(state["told"]) != (n * desk.corrects, space.dim):
            raise SnapshotError("what the copies were told is not one point for each pending round.")
        if desk.corrects:
            tolds = [frozen(read_outcome(space, row, 0)) for row in state["told"]]
        asked = zip(holders, tolds, given, strict=True)
        announced = [announce(twin.pool.copies[i], told, group) for i, told, (*_, group, _) in asked]
        numbers = list(holders)
    twin.counts, twin.time = counts, None if time is None else float(time)
    twin.closed, twin.pending = closed_rounds(state["closed"], space), OrderedDict()
    for (named, order, due, group, b), told, x, number in zip(given, tolds, announced, numbers, strict=True):
        twin.pending[named] = Pending(order, b, group, told, x, due, number)
    twin.dues = due_heap(twin.pending)
    _check_counts(twin)
    return twin


def _fill(pool: Pool, state: dict[str, Any], ids: list[Id]) -> list[int]:
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


def _check_counts(desk: Desk) -> None:
    counts, n = desk.counts, len(desk.pending)
    learned = [] if desk.ledger is None else [desk.ledger.rounds]
    if desk.pool is not None:
        learned.append(sum(copy.rounds for copy in desk.pool.copies))
    if desk.front is not None:  # which may have learned before, where there is no pool
        learned.append(desk.front.rounds if desk.pool is not None else min(desk.front.rounds, counts.learned))
    agreed = counts.opened == counts.learned + counts.void + n and {*learned} <= {counts.learned}
    if not agreed or len(desk.closed) > counts.learned + counts.void or n > (desk.limit or n):
        raise SnapshotError(f"the parts do not agree on {counts.opened} rounds.")
    if any(named in desk.closed for named in desk.pending):
        raise SnapshotError("a round is both pending and closed.")

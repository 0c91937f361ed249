"""Revised forecasts: what was announced for a round before its last forecast, and how good it was by lead time."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

import numpy as np

from treecal._states import check_names
from treecal._typing import Array, Saved
from treecal.exceptions import SnapshotError
from treecal.geometry import ConvexSet, Simplex, frozen, read_outcome
from treecal.late._pool import Id

_SUMS = 3  # of forecasts, of squared errors, and of how much too sure they were


class Lead(NamedTuple):
    """Forecasts so long before their outcomes, revised ones and the last ones.

    Attributes
    ----------
    least, below
        The lead time: from `least` on, and less than `below`. Where no times are known, the number of revisions that
        followed.
    forecasts
        How many.
    brier
        The mean of `Σ (p_k − y_k)²`.
    too_sure
        Of classes, the mean probability of the most likely one less how often it was the outcome; else NaN.
    """

    least: float
    below: float
    forecasts: int
    brier: float
    too_sure: float


class Revisions:
    """Earlier forecasts of pending rounds, and sums over those with outcomes, by powers of two of lead time."""

    def __init__(self, space: ConvexSet) -> None:
        self._space = space
        self._opened: dict[Id, float] = {}  # when a round was opened that is not revised yet
        self._said: dict[Id, list[tuple[float | None, Array]]] = {}
        self._sums: dict[int, Array] = {}
        self._most = 1000

    def __bool__(self) -> bool:
        return bool(self._said or self._sums)

    def note(self, named: Id, now: float | None, before: Array, after: Array) -> None:
        """Note that a forecast was revised: the first time, what was announced first."""
        said = self._said.setdefault(named, [(self._opened.pop(named, None), before)])
        said.append((now, after))

    def opened(self, named: Id, now: float, pending: Container[Id]) -> None:
        """Note when a round was opened."""
        self._opened[named] = now
        if len(self._opened) > self._most:
            self._opened = {each: time for each, time in self._opened.items() if each in pending}
            self._most = 2 * len(self._opened) + 1000

    def last(self, named: Id) -> Array | None:
        """Return the forecast that a pending round was revised to last; None if it was not."""
        said = self._said.get(named)
        return None if said is None else said[-1][1]

    def drop(self, named: Id) -> None:
        """Forget a round whose outcome will not be learned."""
        self._said.pop(named, None)

    def score(self, named: Id, outcome: Array, now: float | None) -> None:
        """Score all that was announced for a round whose outcome is here; of what has times, where they are known."""
        said = self._said.pop(named, [])
        timed = now is not None and any(time is not None for time, _ in said)
        for k, (time, mean) in enumerate(said):
            if timed and time is None:
                continue
            lead = now - time if timed and now is not None and time is not None else len(said) - 1 - k
            place = math.frexp(lead)[1] if lead >= 1 else 0
            top = int(mean.argmax())
            sure = mean[top] - outcome[top] if isinstance(self._space, Simplex) else math.nan
            row = np.array([1.0, float(((mean - outcome) ** 2).sum()), float(sure)])
            self._sums[place] = self._sums.get(place, np.zeros(_SUMS)) + row

    def forget(self, pending: Container[Id]) -> None:
        """Forget rounds that are void."""
        for named in [named for named in self._said if named not in pending]:
            del self._said[named]

    def leads(self) -> list[Lead]:
        """Return how good forecasts were, the shortest lead time first."""
        found = []
        for place in sorted(self._sums):
            count, squares, sure = self._sums[place].tolist()
            least = 2.0 ** (place - 1) if place else 0.0
            found.append(Lead(least, 2.0**place, int(count), squares / count, sure / count))
        return found

    def state(self, pending: Container[Id] = ()) -> Saved:
        """Return them as data, with the times at which pending rounds were opened."""
        opened = {named: time for named, time in self._opened.items() if named in pending}
        said = [(named, time, mean) for named, each in self._said.items() for time, mean in each]
        return {
            "opened": _listed(opened),
            "opened_at": np.array(list(opened.values())),
            "ids": _listed([named for named, _, _ in said]),
            "times": [time for _, time, _ in said],
            "means": np.array([mean for _, _, mean in said]).reshape(-1, self._space.dim),
            "places": sorted(self._sums),
            "sums": np.array([self._sums[place] for place in sorted(self._sums)]).reshape(-1, _SUMS),
        }

    def resumed(self, state: Any, pending: Container[Id]) -> Revisions:
        """Return those of a state, or raise."""
        check_names("the revisions", state, ("opened", "opened_at", "ids", "times", "means", "places", "sums"))
        twin = Revisions(self._space)
        try:
            for named, time in zip(state["opened"], np.asarray(state["opened_at"], np.float64), strict=True):
                twin._opened[_pending(named, pending)] = _finite(time)
            means = np.asarray(state["means"], np.float64).reshape(-1, self._space.dim)
            for named, time, mean in zip(state["ids"], state["times"], means, strict=True):
                point = frozen(read_outcome(self._space, mean, 0))
                at = None if time is None else _finite(time)
                twin._said.setdefault(_pending(named, pending), []).append((at, point))
            sums = np.asarray(state["sums"], np.float64).reshape(-1, _SUMS)
            for place, row in zip(state["places"], sums, strict=True):
                if not (isinstance(place, int) and 0 <= place < 2000 and row[0] >= 1 and row[1] >= 0):
                    raise SnapshotError("the sums by lead time cannot be.")
                twin._sums[place] = np.array(row)
        except (TypeError, ValueError):
            raise SnapshotError("the revisions cannot be read.") from None
        return twin


def _listed(ids: Iterable[Id]) -> list[Any]:
    return [list(named) if isinstance(named, tuple) else named for named in ids]


def _pending(named: Any, pending: Container[Id]) -> Id:
    known: Id = tuple(named) if isinstance(named, list) else named
    if known not in pending:
        raise SnapshotError(f"a revision is of {known!r}, which is not pending.")
    return known


def _finite(time: float) -> float:
    if not math.isfinite(time):
        raise SnapshotError(f"a revision is of the time {time}.")
    return float(time)

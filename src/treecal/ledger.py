"""The ledger: for every distinct forecast point, its total weight and the sum of the outcomes that met it.

That is a sufficient statistic for every calibration error in the paper, for all norms and divergences at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._reading import Brier, Reading, Table
from treecal._states import Configured, check_array, check_count, check_names, check_number
from treecal._sums import Totals, group_rows, two_sum
from treecal._typing import Array, Integers, Saved
from treecal._validate import HEAVIEST, finite_array, sample_weight, sample_weights
from treecal.exceptions import ForecastError, ParameterError, SnapshotError, TreeCalError
from treecal.forecast import Forecast, uniform
from treecal.geometry import (
    ROUNDING,
    ConvexSet,
    Distance,
    as_distance,
    checked_tolerance,
    read_forecast,
    read_forecast_rows,
    read_outcome,
    read_outcome_rows,
)
from treecal.measures import Losses

__all__ = ["Brier", "Ledger", "Reading", "Table"]

_NO_NODE = np.array([-1, -1])
_BATCH = 4096  # points that may wait
_settling = RLock()
_Round = tuple[bytes, bytes, bytes, bytes, float]  # the bytes of points, weights, nodes and outcome; and its weight
_Settled = tuple[int, Array]  # rounds added up; their total weight, and what rounding lost of it
_Due = tuple[Integers, Array]  # rows, and the totals they are to have


class Ledger(Configured):
    """The total weight and outcome sum of every distinct forecast, from which every calibration error is read.

    Points are distinguished exactly (`-0.0` is `0.0`). Sums and counts are kept and divided once; a forecast that is
    uniform over n points counts whole rounds in units of 1/n, so that with one-hot outcomes every number in the ledger
    is an exact integer, in any order of rounds or merges; other sums carry what rounding drops. Rounds may have
    weights: one of weight 3 counts as three.

    Several threads may record and read: each round counts once, and an interrupt leaves it recorded or not.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    tolerance
        How far from a simplex a forecast given as a point may lie, as float32 and some decimals round it; it is then
        recorded with negative entries at 0, divided by its sum. A point within 1e-9 is recorded as it is.

    Examples
    --------
    >>> import treecal as tc
    >>> space = tc.Simplex(2)
    >>> ledger = tc.Ledger(space)
    >>> for y in [[1, 0], [1, 0], [1, 0], [0, 1]]:
    ...     ledger.record([0.5, 0.5], y)
    >>> ledger.error("l1")
    0.5
    >>> ledger.error(tc.l2.squared), ledger.error(tc.NegativeEntropy())
    (0.125, 0.13081203...)
    >>> ledger.table("l1").outcome
    array([[0.75, 0.25]])
    """

    _fields = ("space", "tolerance")

    def __init__(self, space: ConvexSet, *, tolerance: float = ROUNDING) -> None:
        self.space = space
        self.tolerance = checked_tolerance(tolerance)
        self._load((0, np.zeros(2)), np.empty((0, space.dim + 3), np.int64), np.empty((0, 2, 1 + space.dim)))

    @classmethod
    def from_rows(
        cls,
        space: ConvexSet,
        points: ArrayLike,
        weights: ArrayLike,
        sums: ArrayLike,
        *,
        rounds: int,
        nodes: ArrayLike | None = None,
        parts: ArrayLike = 1,
        weight: float | None = None,
    ) -> Ledger:
        """Return the ledger of rounds that are already added up.

        Parameters
        ----------
        space
            The set outcomes and forecasts lie in.
        points
            Forecast points, `(n, d)`. One that appears twice is added up.
        weights
            For each point its weight over all rounds, times `parts`, `(n,)`.
        sums
            For each point the sum of the outcomes, each times the weight the point had and `parts`, `(n, d)`.
        rounds
            Number of rounds.
        nodes
            The node of each point, `(n, 2)` as (height, index), where points stand on a tree.
        parts
            For each point, or for all: the number of points of the uniform forecasts it was part of, so that `weights`
            counts rounds and `sums` adds plain outcomes; 0 where weights were not uniform.
        weight
            Total weight of the rounds; by default they have none, and it is their number.

        Examples
        --------
        >>> import treecal as tc
        >>> space = tc.Simplex(2)
        >>> Ledger.from_rows(space, [[0.5, 0.5]], [4], [[3, 1]], rounds=4).error("l1")  # class 0 three times
        0.5
        >>> two = Ledger.from_rows(space, [[0.5, 0.5], [1, 0]], [4, 4], [[3, 1], [3, 1]], rounds=4, parts=2)
        >>> two.table("l1").weight
        array([2., 2.])
        """
        p, w, total = (finite_array(*given) for given in (("points", points), ("weights", weights), ("sums", sums)))
        n = len(p)
        dim = space.dim
        key = np.tile(_NO_NODE, (n, 1)) if nodes is None else np.asarray(nodes)
        shapes = p.shape, w.shape, total.shape, key.shape
        if shapes != ((n, dim), (n,), (n, dim), (n, 2)):
            raise ParameterError(
                f"points, weights, sums and nodes have shapes {shapes}, expected (n, {dim}), (n,), (n, {dim}), (n, 2)."
            )
        count = np.asarray(parts)
        if key.dtype.kind not in "iu" or count.dtype.kind not in "iu":
            raise ParameterError(f"nodes and parts are {key.dtype} and {count.dtype}, expected integers.")
        ledger = cls(space)
        amounts = np.column_stack([w, total])
        rows, totals = ledger._table.added(_identity(p, key, np.broadcast_to(count, n)), amounts)
        ledger._table.totals[rows] = totals
        ledger._now = (rounds, np.array([rounds if weight is None else weight, 0.0])), [], None
        return ledger

    def _load(self, settled: _Settled, names: Integers, totals: Array) -> None:
        # A row is named by its point, its node and its parts, all as int64: it holds what forecasts have given that
        # point, on that node, with 1/parts of their weight; parts = 0 for weights that are not uniform.
        # Its totals are weight and outcome sum.
        self._table = Totals(names, totals)
        self._busy = False
        # Rounds added up; rounds to be added up, some hundred at once; and totals that may not be written yet. All in
        # one, so that one assignment turns rounds that wait into totals.
        self._now: tuple[_Settled, list[_Round], _Due | None] = settled, [], None

    @property
    def rounds(self) -> int:
        """Number of rounds recorded, of any weight."""
        (settled, _), waiting, _ = self._now
        return settled + len(waiting)

    @property
    def weight(self) -> float:
        """Total weight of these rounds: their number, unless they have weights."""
        with _settling:
            self._settle()
            return float(self._now[0][1].sum())

    def record(
        self, forecast: Forecast | ArrayLike | Mapping[Any, Any], outcome: ArrayLike, *, weight: float = 1.0
    ) -> None:
        """Record one round: the forecast and the outcome. Invalid input raises and records nothing.

        Parameters
        ----------
        forecast
            The distribution; or one point, for a pure forecast.
        outcome
            A point of the set; on a simplex also a class, by its index or its name.
        weight
            How much the round counts: 2 as much as two rounds, and 0 not at all, though it is one of `rounds`.

        Examples
        --------
        >>> import treecal as tc
        >>> ledger = tc.Ledger(tc.Simplex(classes=["rain", "sun"]))
        >>> ledger.record([0.5, 0.5], "rain", weight=3)
        >>> ledger.record([0.5, 0.5], "sun")
        >>> ledger.error("l1"), ledger.rounds, ledger.weight
        (0.5, 2, 4.0)
        """
        x = self._checked(forecast)
        y = read_outcome(self.space, outcome, self.rounds + 1)
        w = weight if type(weight) is float and weight == 1.0 else sample_weight(weight)
        entry = _entry(x, y, w)
        # The round is recorded. No call lies between reading the list and appending, so that no thread settles it
        # in between.
        self._now[1].append(entry)
        self._settle_some(len(x))

    def _settle_some(self, points: int) -> None:
        """Settle after a round of this many points if enough of them are pending."""
        # Each of the rounds that wait passed this with its own count, so that no more than 10 batches of points wait.
        if len(self._now[1]) * points >= _BATCH and not self._busy:
            self._settle()

    def _record_as(self, number: int, forecast: Forecast, outcome: Array, weight: float) -> None:
        """Record the round of this number, which is the next one; or is recorded, and then nothing changes.

        For callers that may be interrupted, and then do it again.
        """
        entry = _entry(forecast, outcome, weight)
        (settled, _), waiting, _ = self._now
        place = number - 1 - settled
        if place >= 0:
            waiting[place : place + 1] = [entry]  # the ledger's list no longer, if it was settled in the meantime
            self._settle_some(len(forecast))

    def _checked(self, forecast: Forecast | ArrayLike | Mapping[Any, Any]) -> Forecast:
        """Return the forecast, known to lie in the set."""
        space = self.space
        if isinstance(forecast, Forecast):
            if forecast.space is space or forecast.space == space:
                return forecast
            ours = getattr(space, "classes", None)
            theirs = getattr(forecast.space, "classes", None)
            if ours and theirs:
                raise ForecastError(f"the forecast's classes are {', '.join(theirs)}; the ledger's {', '.join(ours)}.")
            return Forecast(forecast.points, weights=forecast.weights, nodes=forecast.nodes, space=space)
        point = read_forecast(space, forecast, self.rounds + 1, self.tolerance)
        return Forecast.trusted(point[None], uniform(1), None, space)

    def record_many(
        self,
        forecasts: ArrayLike | Mapping[Any, Any],
        outcomes: ArrayLike | Sequence[Any],
        *,
        weights: ArrayLike | None = None,
    ) -> None:
        """Record many rounds at once, as `record` would one by one: the ledger is the same bit for bit.

        Invalid input raises, names the first invalid round, and records nothing; nor does an interrupt.

        Parameters
        ----------
        forecasts
            Points, `(n, d)`; on a `Cdf` also a table of quantiles, members, or means and standard deviations.
        outcomes
            Points, `(n, d)`; on a simplex also the classes, by their indices or names, `(n,)`.
        weights
            The weight of each round, `(n,)`; by default 1.

        Examples
        --------
        >>> import treecal as tc
        >>> ledger = tc.Ledger(tc.Simplex(classes=["rain", "sun"]))
        >>> ledger.record_many([[0.5, 0.5]] * 4, ["rain", "rain", "sun", "rain"])
        >>> ledger.error("l1")
        0.5
        """
        before = self.rounds
        points = read_forecast_rows(self.space, forecasts, before=before, tolerance=self.tolerance)
        rows = read_outcome_rows(self.space, outcomes, before=before)
        if len(points) != len(rows):
            raise ParameterError(f"there are {len(points)} forecasts and {len(rows)} outcomes, expected one each.")
        own = np.ones(len(points)) if weights is None else sample_weights(weights, len(points))
        counted = own > 0
        parts = np.ones(int(counted.sum()), np.int64)
        names = _identity(points[counted], np.tile(_NO_NODE, (len(parts), 1)), parts)
        self._settle((names, _weighed(rows[counted], own[counted]), own))

    def _settle(self, more: tuple[Integers, Array, Array] | None = None) -> None:
        """Add up the rounds that wait; and then `more`: names, amounts, and the weight of each round."""
        with _settling:  # reading settles, and several threads may read
            if self._busy:
                raise TreeCalError(
                    "a ledger was read while it adds up its rounds, by a signal handler or a finalizer.",
                    hint="let the handler set a flag, and read the ledger in the loop.",
                )
            self._busy = True
            try:
                self._write()
                settled, waiting, _ = self._now
                if taken := waiting[:]:
                    own = np.array([weight for *_, weight in taken])
                    after = _counted(settled, own)
                    due = self._table.added(*self._sums(taken, own))
                    # Rounds recorded in the meantime stay pending: between the slice and the assignment is no call, so
                    # no other thread runs in between.
                    self._now = after, waiting[len(taken) :], due
                    self._write()
                if more is not None:
                    names, amounts, own = more
                    after = _counted(self._now[0], own)
                    due = self._table.added(names, amounts)
                    self._now = after, self._now[1], due
                    self._write()
            finally:
                self._busy = False

    def _write(self) -> None:
        """Write the totals that are due: again, if that was interrupted."""
        settled, waiting, due = self._now
        if due is not None:
            rows, totals = due
            self._table.totals[rows] = totals
            self._now = settled, waiting, None

    def _sums(self, taken: list[_Round], own: Array) -> tuple[Integers, Array]:
        """Return the names of all points of some rounds, and what is to be added to each."""
        if not own.all():  # rounds of weight 0
            taken = [entry for entry in taken if entry[-1]]
            own = own[own > 0]
        dim = self.space.dim
        if not taken:
            return np.empty((0, dim + 3), np.int64), np.empty((0, dim + 1))
        columns = (b"".join(column) for column in zip(*(entry[:4] for entry in taken), strict=True))
        points, weights, nodes, outcomes = map(np.frombuffer, columns)
        counts = np.array([len(entry[1]) // 8 for entry in taken])
        equal = np.logical_and.reduceat(weights == (1 / counts).repeat(counts), np.cumsum(counts) - counts)
        parts = np.where(equal, counts, 0).repeat(counts)
        names = _identity(points.reshape(-1, dim), nodes.view(np.int64).reshape(-1, 2), parts)
        amounts = _weighed(outcomes.reshape(-1, dim), own).repeat(counts, axis=0)
        if not equal.all():
            amounts *= np.where(parts, 1.0, weights)[:, None]
        return names, amounts

    def merge(self, other: Ledger) -> Ledger:
        """Return the ledger of both sets of rounds together; neither is changed."""
        if self.space != other.space:
            raise ParameterError(f"ledgers over {self.space!r} and {other.space!r} do not add up.")
        merged = Ledger(self.space, tolerance=self.tolerance)
        for part in (self, other):
            names, totals, (rounds, weight) = part._rows()
            for amounts in totals.swapaxes(0, 1):
                rows, added = merged._table.added(names, amounts)
                merged._table.totals[rows] = added
            before, heavy = merged._now[0]
            merged._now = (before + rounds, _total(heavy, weight)), [], None
        return merged

    def _rows(self) -> tuple[Integers, Array, _Settled]:
        """Return the names and totals of all rows, which never change afterwards, and the rounds in them."""
        with _settling:
            self._settle()
            return *self._table.rows(), self._now[0]

    def exact(self, *, per_node: bool = False) -> Reading:
        """Read the ledger with forecasts distinguished exactly: by point, or by point and node."""
        names, totals, settled = self._rows()
        return self._read(names, totals, settled, names[:, : self.space.dim + 2 * per_node], resolution=None)

    def binned(self, *, resolution: float) -> Reading:
        """Read the ledger binned: forecasts in one cell of a grid count as one, at their weighted mean.

        For forecasters whose points hardly repeat. A binned error is never more than the exact one in any norm, and
        means less: forecasts in one cell may miss in opposite directions.

        Parameters
        ----------
        resolution
            Width of the cells; cell boundaries lie halfway between multiples of it.

        Examples
        --------
        >>> import treecal as tc
        >>> ledger = tc.Ledger(tc.Simplex(2))
        >>> ledger.record([0.51, 0.49], [1, 0])
        >>> ledger.record([0.49, 0.51], [0, 1])
        >>> round(ledger.error("l1"), 3), round(ledger.binned(resolution=0.1).error("l1"), 3)
        (0.98, 0.0)
        """
        if not (isinstance(resolution, int | float | np.number) and 0 < resolution < math.inf):
            raise ParameterError.expected("resolution", resolution, "a positive number")
        names, totals, settled = self._rows()
        cells = np.rint(self._points(names) / resolution) + 0.0
        return self._read(names, totals, settled, cells.view(np.int64), resolution=float(resolution))

    def _points(self, names: Integers) -> Array:
        return names[:, : self.space.dim].view(np.float64)

    def _read(
        self, names: Integers, totals: Array, settled: _Settled, groups: Integers, *, resolution: float | None
    ) -> Reading:
        """Read the rows, those with equal `groups` together."""
        first, group = group_rows(groups)
        rounds = settled[0]
        weight = float(settled[1].sum())
        # Bring all weights to one denominator, as long as float64 can count in it, so that whole rounds stay whole.
        parts = names[:, -1]
        unit = 1
        for count in np.unique(parts[parts > 0]).tolist():
            unit = math.lcm(unit, count)
            if unit * max(rounds, weight) >= 2**53:
                unit = 1
                break
        own = np.where(parts > 0, unit / np.maximum(parts, 1), unit)[:, None] * totals.sum(axis=1)
        sums = np.zeros((len(first), 1 + self.space.dim))
        points = np.zeros((len(first), self.space.dim))
        np.add.at(sums, group, own)
        if resolution is None:
            points[group] = self._points(names)
        else:
            np.add.at(points, group, own[:, :1] * self._points(names))
        weights = sums[:, 0]
        played = weights > 0  # a point of weight 0 was never forecast
        if resolution is not None:
            points[played] /= weights[played, None]
        outcomes = sums[played, 1:] / weights[played, None]
        return Reading(points[played], weights[played] / unit, outcomes, rounds, resolution, weight=weight)

    def regret(self, losses: Any) -> Any:
        """Return the swap regret per round of whoever acts on the forecasts: `Reading.regret`.

        Parameters
        ----------
        losses
            What each action costs under each class: see `Losses`. Of several decisions the regrets come by name.
        """
        return self.exact().regret(Losses.read(self.space, losses))

    def error(self, distance: Distance | str = "l1", *, per_node: bool = False, total: bool = False) -> float:
        """Return the calibration error `Σ_p m_p · D(ν_p, p)`, per round unless `total`.

        Parameters
        ----------
        distance
            A norm (or its name), a squared norm, or a regularizer for its Bregman divergence.
        per_node
            Count each node of the tree separately: the per-node error, which the paper calls labelled. It is never
            less than the error by point.
        total
            Sum over rounds instead of the mean.
        """
        return self.exact(per_node=per_node).error(as_distance(distance, self.space), total=total)

    def table(self, distance: Distance | str = "l1", *, per_node: bool = False) -> Table:
        """Return one row for each distinct forecast, the largest share of the error first."""
        return self.exact(per_node=per_node).table(as_distance(distance, self.space))

    def get_state(self) -> Saved:
        """Return the rows, as arrays that never change afterwards."""
        names, totals, settled = self._rows()
        points = self._points(names).copy()
        keys = names[:, self.space.dim :].copy()
        return {"rounds": settled[0], "weight": settled[1].copy(), "points": points, "keys": keys, "totals": totals}

    def set_state(self, state: Saved) -> None:
        """Resume from such rows. Any others raise a `SnapshotError` and change nothing."""
        check_names("the ledger", state, ("rounds", "weight", "points", "keys", "totals"))
        rounds = state["rounds"]
        points = state["points"]
        keys = state["keys"]
        totals = state["totals"]
        check_count("rounds", rounds)
        check_array("weight", state["weight"], (2,))
        weight = float(state["weight"].sum())
        check_number("the ledger's weight", weight, least=0.0, most=HEAVIEST * rounds)
        n = len(points) if np.ndim(points) else 0
        dim = self.space.dim
        check_array("points", points, (n, dim))
        check_array("keys", keys, (n, 3), np.int64)
        check_array("totals", totals, (n, 2, 1 + dim))
        names = _identity(points, keys[:, :2], keys[:, 2])
        if len(group_rows(names)[0]) < n:
            raise SnapshotError("a row of the ledger appears twice.")
        if (keys[:, 2] < 0).any() or (totals.sum(axis=1)[:, 0] < 0).any():
            raise SnapshotError("the ledger's parts or weights are less than 0.")
        if not self.space.contains(points, tol=ROUNDING).all():
            raise SnapshotError(f"the ledger's points are not those of {self.space!r}.")
        self._load((int(rounds), state["weight"].copy()), names, totals.copy())

    def __repr__(self) -> str:
        return f"Ledger({self.space!r}: {self.rounds} rounds, {len(self._rows()[0])} rows)"


def _entry(forecast: Forecast, outcome: Array, weight: float) -> _Round:
    """Return a round as it waits, in bytes that nothing changes."""
    nodes = forecast.nodes
    node_bytes = _NO_NODE.tobytes() * len(forecast) if nodes is None else nodes.tobytes()
    return forecast._points.tobytes(), forecast._weights.tobytes(), node_bytes, outcome.tobytes(), weight


def _identity(points: Array, nodes: Integers, parts: Integers) -> Integers:
    """Return the name of each row: the exact bits of its point, its node and its parts."""
    bits = (points + 0.0).view(np.int64)  # −0.0 is 0.0
    return np.concatenate([bits, nodes, parts[:, None]], axis=1)


def _weighed(outcomes: Array, weights: Array) -> Array:
    """Return what rounds add to the rows of their points: their weights, and their outcomes times these."""
    amounts = np.column_stack([weights, outcomes])
    if (weights != 1.0).any():
        amounts[:, 1:] *= weights[:, None]
    return amounts


def _counted(settled: _Settled, weights: Array) -> _Settled:
    """Return the number and the total weight of rounds with these as well, added one after the other."""
    rounds, total = settled
    partial = np.add.accumulate(np.concatenate([total[:1], weights]))
    _, lost = two_sum(partial[:-1], weights)
    return rounds + len(weights), np.array([partial[-1], np.add.accumulate(np.concatenate([total[1:], lost]))[-1]])


def _total(one: Array, other: Array) -> Array:
    """Return the sum of two total weights, with what rounding loses of it."""
    total, lost = two_sum(one[:1], other[:1])
    return np.concatenate([total, lost + one[1:] + other[1:]])

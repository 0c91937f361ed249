"""The ledger: for every distinct forecast point, its total weight and the sum of the outcomes that met it.

That is a sufficient statistic for every calibration error in the paper, for all norms and divergences at once.
"""

from __future__ import annotations

import math
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._sums import group_rows, two_sum
from treecal._typing import Array, Integers
from treecal._validate import finite_array
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.geometry import ConvexSet, Distance, as_distance
from treecal.geometry._outcomes import FLOAT64, read_outcome

_NO_NODE = (-1, -1)
_ZERO = np.zeros(())  # added to points, makes −0.0 into 0.0; NumPy adds an array faster than a number of Python's
_key = Struct("=3q").pack  # a node and parts, as the three int64 that end a row's name


class Table(NamedTuple):
    """One row for each distinct forecast, the largest share of the error first.

    Attributes
    ----------
    forecast
        The forecast point, `(n, d)`.
    weight
        Its total weight: the number of rounds it was forecast in, counted by weight.
    outcome
        The mean outcome of those rounds, `(n, d)`.
    gap
        The distance of the mean outcome from the forecast; `weight @ gap` is the total error.
    """

    forecast: Array
    weight: Array
    outcome: Array
    gap: Array


class Reading:
    """The ledger read in one way: exact or binned, per node or not. Made by `Ledger.exact` and `Ledger.binned`.

    Attributes
    ----------
    forecasts, weights, outcomes
        For each group: the forecast, its total weight, and the mean outcome.
    rounds
        Number of rounds read.
    resolution
        Width of the grid's cells; None for an exact reading.
    """

    def __init__(
        self, forecasts: Array, weights: Array, outcomes: Array, rounds: int, resolution: float | None
    ) -> None:
        self.forecasts, self.weights, self.outcomes = forecasts, weights, outcomes
        self.rounds, self.resolution = rounds, resolution

    def error(self, distance: Distance | str, *, total: bool = False) -> float:
        """Return `Σ_p m_p · D(ν_p, p)`, per round unless `total`."""
        # Correctly rounded, so the order in which rounds or ledgers came leaves no trace.
        error = math.fsum(self.weights * as_distance(distance).between(self.outcomes, self.forecasts))
        if total:
            return error
        if self.rounds == 0:
            raise ParameterError("no round is recorded, so there is no error per round.")
        return error / self.rounds

    def table(self, distance: Distance | str) -> Table:
        """Return one row for each group, the largest share of the error first."""
        gap = as_distance(distance).between(self.outcomes, self.forecasts)
        order = np.argsort(-self.weights * gap, kind="stable")
        return Table(self.forecasts[order], self.weights[order], self.outcomes[order], gap[order])

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self) -> str:
        how = "exact" if self.resolution is None else f"binned at {self.resolution:g}"
        return f"Reading({len(self)} groups over {self.rounds} rounds, {how})"


class Ledger:
    """The total weight and outcome sum of every distinct forecast, from which every calibration error is read.

    Points are distinguished exactly (`-0.0` is `0.0`). Sums and counts are kept and divided once; a forecast that is
    uniform over n points counts whole rounds in units of 1/n, so that with one-hot outcomes every number in the ledger
    is an exact integer, whatever the order of rounds or merges; other sums carry what rounding drops.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.

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

    def __init__(self, space: ConvexSet) -> None:
        self.space = space
        empty = np.empty((0, 1 + space.dim))
        self._load(0, np.empty((0, space.dim + 3), np.int64), empty, empty)

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
    ) -> Ledger:
        """Return the ledger of rounds that have been added up already.

        Parameters
        ----------
        space
            The set outcomes and forecasts lie in.
        points
            Forecast points, `(n, d)`. One that appears twice is added up.
        weights
            For each point the weight it was given over all rounds, times `parts`, `(n,)`.
        sums
            For each point the sum of the outcomes, each times the weight the point had and `parts`, `(n, d)`.
        rounds
            Number of rounds.
        nodes
            The node of each point, `(n, 2)` as (height, index), where points stand on a tree.
        parts
            For each point, or for all: the number of points of the uniform forecasts it was part of, so that `weights`
            counts rounds and `sums` adds plain outcomes; 0 where weights were not uniform, and stand as they are.

        Examples
        --------
        >>> import treecal as tc
        >>> space = tc.Simplex(2)
        >>> one = Ledger.from_rows(space, [[0.5, 0.5]], [4], [[3, 1]], rounds=4)  # four rounds, three of the first class
        >>> one.error("l1")
        0.5
        >>> two = Ledger.from_rows(space, [[0.5, 0.5], [1, 0]], [4, 4], [[3, 1], [3, 1]], rounds=4, parts=2)
        >>> two.table("l1").weight
        array([2., 2.])
        """
        p, w, total = (finite_array(*given) for given in (("points", points), ("weights", weights), ("sums", sums)))
        key = np.asarray(_NO_NODE if nodes is None else nodes)
        shapes = p.shape, w.shape, total.shape, key.shape if nodes is not None else (len(p), 2)
        n, dim = len(p), space.dim
        if shapes != ((n, dim), (n,), (n, dim), (n, 2)):
            raise ParameterError(
                f"points, weights, sums and nodes have shapes {shapes}, expected (n, {dim}), (n,), (n, {dim}), (n, 2)."
            )
        totals = np.column_stack([w, total])
        names = np.empty((n, dim + 3), np.int64)
        names[:, :dim], names[:, dim:-1], names[:, -1] = (p + _ZERO).view(np.int64), key, parts
        ledger = cls(space)
        ledger._load(rounds, names, totals, np.zeros_like(totals))
        return ledger

    def _load(self, rounds: int, names: Integers, sums: Array, lost: Array) -> None:
        # A row is named by its point, its node and its parts, all as int64: it holds what forecasts have given that
        # point, on that node, with 1/parts of their weight; parts = 0 for weights that are not uniform.
        self._names = names
        self._sums, self._lost = sums, lost  # weight and outcome sum; and what rounding lost of them
        self._size, self._rounds = len(names), rounds  # rows in use; the arrays may have room for more
        self._index: dict[bytes, int] | None = None  # the row of each name, made when first needed
        # The path recorded last: its points' bytes, its rounds, arity and parts, and its rows.
        self._path: tuple[bytes, int, int, int, list[int]] = b"", 0, 0, 0, []

    @property
    def rounds(self) -> int:
        """Number of rounds recorded."""
        return self._rounds

    def record(self, forecast: Forecast | ArrayLike, outcome: ArrayLike) -> None:
        """Record one round: the forecast and the outcome. Invalid input raises and records nothing.

        Parameters
        ----------
        forecast
            The distribution; or one point, for a pure forecast.
        outcome
            A point of the set.
        """
        x = self._checked(forecast)
        y = read_outcome(self.space, outcome, self._rounds + 1)
        n, weights, equal = len(x), x.weights, uniform(len(x))
        parts = n if weights is equal or weights.tobytes() == equal.tobytes() else 0
        amounts = np.empty((n, 1 + self.space.dim))
        amounts[:, 0], amounts[:, 1:] = 1.0, y
        if not parts:
            amounts *= weights[:, None]
        self._add(self._path_rows(x, parts) if isinstance(x, TreeForecast) else self._rows(x, parts), amounts)
        self._rounds += 1

    def _checked(self, forecast: Forecast | ArrayLike) -> Forecast:
        """Return the forecast, known to lie in the set."""
        space = self.space
        if isinstance(forecast, Forecast):
            if forecast.space is space or forecast.space == space:
                return forecast
            return Forecast(forecast.points, weights=forecast.weights, nodes=forecast.nodes, space=space)
        if isinstance(forecast, np.ndarray) and forecast.dtype == FLOAT64 and forecast.shape == (space.dim,):
            if space.admits(forecast):
                return Forecast.trusted(forecast[None], uniform(1), None, space)
        return Forecast([forecast], space=space)  # which reads other numbers, and says what is wrong

    def _rows(self, x: Forecast, parts: int) -> list[int]:
        """Return the rows of a forecast's points."""
        dim = self.space.dim
        names = np.empty((len(x), dim + 3), np.int64)
        names[:, :dim] = (x.points + _ZERO).view(np.int64)
        names[:, dim:-1] = _NO_NODE if x.nodes is None else x.nodes
        names[:, -1] = parts
        return self._find(_split(names))

    def _path_rows(self, x: TreeForecast, parts: int) -> list[int]:
        """Return the rows of a path's points: as a rule all but the lowest are those of the last path recorded."""
        points, rounds, arity, width = (x.points + _ZERO).tobytes(), x.rounds, x.arity, 8 * self.space.dim
        meet, kept = len(x), list[int]()  # from which height on this path is the last one, and the rows there
        last_points, last_rounds, last_arity, last_parts, last_rows = self._path
        if len(points) == len(last_points) and arity == last_arity and parts == last_parts:
            height, a, b = 0, rounds, last_rounds
            while a != b:
                height, a, b = height + 1, a // arity, b // arity
            if points[height * width :] == last_points[height * width :]:
                meet, kept = min(height, meet), last_rows[height:]
        names = []
        for height in range(meet):
            names.append(points[height * width : (height + 1) * width] + _key(height, rounds, parts))
            rounds //= arity
        rows = self._find(names) + kept
        self._path = points, x.rounds, arity, parts, rows
        return rows

    def _find(self, names: list[bytes]) -> list[int]:
        """Return the row of each name, making those that are new."""
        if self._index is None:
            self._index = {name: row for row, name in enumerate(_split(self._names[: self._size]))}
        index, rows = self._index, []
        for name in names:
            row = index.get(name)
            if row is None:
                row = self._size
                if row == len(self._sums):  # double, so that rows cost O(1) each
                    room = max(16, 2 * row)
                    self._names, self._lost = _longer(self._names, room), _longer(self._lost, room)
                    self._sums = _longer(self._sums, room)
                self._names[row] = np.frombuffer(name, np.int64)
                self._size = row + 1  # were it to end here: a row without weight is in no reading
                index[name] = row
            rows.append(row)
        return rows

    def _add(self, rows: list[int], amounts: Array) -> None:
        """Add weights and outcome sums to the rows."""
        if len(set(rows)) < len(rows):  # one after the other: an indexed assignment would keep only the last
            for i, row in enumerate(rows):
                self._add([row], amounts[i : i + 1])
            return
        at = np.array(rows, np.int64)
        sums, lost = two_sum(self._sums.take(at, 0), amounts)
        if np.count_nonzero(lost):
            lost += self._lost.take(at, 0)
            self._lost[at] = lost
        self._sums[at] = sums

    def merge(self, other: Ledger) -> Ledger:
        """Return the ledger of both sets of rounds together; neither is changed."""
        if self.space != other.space:
            raise ParameterError(f"ledgers over {self.space!r} and {other.space!r} do not add up.")
        merged = Ledger(self.space)
        for part in (self, other):
            n = part._size
            rows = merged._find(_split(part._names[:n]))
            for amounts in (part._sums[:n], part._lost[:n]):
                merged._add(rows, amounts)
        merged._rounds = self._rounds + other._rounds
        return merged

    def exact(self, *, per_node: bool = False) -> Reading:
        """Read the ledger with forecasts distinguished exactly: by point, or by point and node."""
        names = self._names[: self._size, : self.space.dim + 2 * per_node]
        return self._read(np.ascontiguousarray(names), resolution=None)

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
        cells = np.rint(self._points() / resolution) + 0.0
        return self._read(cells.view(np.int64), resolution=float(resolution))

    def _points(self) -> Array:
        return self._names[: self._size, : self.space.dim].view(np.float64)

    def _read(self, groups: Integers, *, resolution: float | None) -> Reading:
        n, forecasts = len(groups), self._points()
        first, group = group_rows(groups)
        # Bring all weights to one denominator, as long as float64 can count in it, so that whole rounds stay whole.
        parts = self._names[:n, -1]
        common = math.lcm(*(int(p) for p in np.unique(parts) if p))
        unit = common if common * self._rounds < 2**53 else 1
        own = np.where(parts > 0, unit / np.maximum(parts, 1), unit)[:, None] * (self._sums[:n] + self._lost[:n])
        totals, points = np.zeros((len(first), 1 + self.space.dim)), np.zeros((len(first), self.space.dim))
        np.add.at(totals, group, own)
        if resolution is None:
            points[group] = forecasts
        else:
            np.add.at(points, group, own[:, :1] * forecasts)
        weights = totals[:, 0]
        played = weights > 0  # a point of weight 0 was never forecast
        if resolution is not None:
            points[played] /= weights[played, None]
        outcomes = totals[played, 1:] / weights[played, None]
        return Reading(points[played], weights[played] / unit, outcomes, self._rounds, resolution)

    def error(self, distance: Distance | str = "l1", *, per_node: bool = False, total: bool = False) -> float:
        """Return the calibration error `Σ_p m_p · D(ν_p, p)`, per round unless `total`.

        Parameters
        ----------
        distance
            A norm (or its name), a squared norm, or a regularizer for its Bregman divergence.
        per_node
            Count each node of the tree by itself: the per-node error, which the paper calls labelled. It is never less
            than the error by point alone.
        total
            Sum over rounds instead of the mean.
        """
        return self.exact(per_node=per_node).error(distance, total=total)

    def table(self, distance: Distance | str = "l1", *, per_node: bool = False) -> Table:
        """Return one row for each distinct forecast, the largest share of the error first."""
        return self.exact(per_node=per_node).table(distance)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {"space": self.space}

    def get_state(self) -> dict[str, Any]:
        """Return the rows, as arrays of their own."""
        n, dim = self._size, self.space.dim
        return {
            "rounds": self._rounds,
            "points": self._points().copy(),
            "keys": self._names[:n, dim:].copy(),
            "totals": np.stack([self._sums[:n], self._lost[:n]], axis=1),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such rows."""
        points, totals = np.array(state["points"]), np.array(state["totals"])
        names = np.concatenate([points.view(np.int64), state["keys"]], axis=1)
        self._load(state["rounds"], names, totals[:, 0].copy(), totals[:, 1].copy())

    def __repr__(self) -> str:
        return f"Ledger({self.space!r}: {self._rounds} rounds, {self._size} rows)"


def _split(rows: Array | Integers) -> list[bytes]:
    """Return the bytes of each row."""
    raw, width = rows.tobytes(), 8 * rows.shape[1]
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def _longer(rows: NDArray[Any], room: int) -> NDArray[Any]:
    """Return the rows, followed by zeros up to so many."""
    longer = np.zeros((room, rows.shape[1]), rows.dtype)
    longer[: len(rows)] = rows
    return longer

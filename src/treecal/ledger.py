"""The ledger: for every distinct forecast point, how much weight it was given and what came of it.

That is a sufficient statistic for every calibration error in the paper, for all norms and divergences at once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from treecal._sums import group_rows, two_sum
from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.geometry import ConvexSet, Distance, as_distance
from treecal.geometry._outcomes import read_outcome

_NO_LABEL = -1
_ONE = np.ones(1)


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
    """The ledger read in one way: exactly or binned, labelled or not. Made by `Ledger.exact` and `Ledger.binned`.

    Attributes
    ----------
    forecasts, weights, outcomes
        For each group: the forecast, its total weight, and the mean outcome.
    rounds
        Number of rounds read.
    resolution
        Width of the grid's cells; None when forecasts were told apart exactly.
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
    """Masses and outcome sums of every distinct forecast, from which every calibration error is read.

    Points are told apart exactly (`-0.0` is `0.0`). Sums and counts are kept and divided once; a forecast that is
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
        self._rounds = 0
        self._size = 0  # rows in use
        self._index: dict[bytes, int] | None = {}  # made when first needed
        # One row for each (point, label, parts): the forecasts that gave the point, under the label, 1/parts of the
        # weight; parts = 0 for weights that are not uniform.
        self._points = np.empty((0, space.dim))
        self._keys = np.empty((0, 3), np.int64)  # label and parts
        self._totals = np.empty((0, 2, 1 + space.dim))  # mass and outcome sum; then what rounding lost of them

    @property
    def rounds(self) -> int:
        """Number of rounds recorded."""
        return self._rounds

    def record(self, forecast: Forecast | ArrayLike, outcome: ArrayLike) -> None:
        """Record one round: what was forecast and what happened. Bad input raises and records nothing.

        Parameters
        ----------
        forecast
            The distribution; or one point, for a pure forecast.
        outcome
            A point of the set.
        """
        if not isinstance(forecast, Forecast):
            forecast = Forecast(np.asarray(forecast)[None], space=self.space)
        elif forecast.space is not self.space and forecast.space != self.space:
            forecast = Forecast(forecast.points, weights=forecast.weights, nodes=forecast.nodes, space=self.space)
        y = read_outcome(self.space, outcome, self._rounds + 1)
        n, w = len(forecast), forecast.weights
        parts = n if w is uniform(n) or (w == 1 / n).all() else 0
        keys = np.full((n, 3), _NO_LABEL, np.int64)
        if forecast.nodes is not None:
            keys[:, :2] = forecast.nodes
        keys[:, 2] = parts
        self._add(forecast.points, keys, np.multiply.outer(np.ones(n) if parts else w, np.concatenate([_ONE, y])))
        self._rounds += 1

    def _add(self, points: Array, keys: Integers, totals: Array) -> None:
        """Add weights and outcome sums to the rows of these keys, making the rows that are new."""
        rows = self._rows(points, keys)
        # A fancy-indexed addition would count a row that comes twice only once.
        steps = [slice(None)] if len(set(rows)) == len(rows) else [slice(i, i + 1) for i in range(len(rows))]
        for step in steps:
            at = rows[step]
            self._totals[at, 0], lost = two_sum(self._totals[at, 0], totals[step])
            self._totals[at, 1] += lost

    def _rows(self, points: Array, keys: Integers) -> list[int]:
        points = points + 0.0  # −0.0 is 0.0
        if self._index is None:
            self._index = {name: row for row, name in enumerate(_names(self._points, self._keys))}
        index, rows, new = self._index, [], []
        for i, name in enumerate(_names(points, keys)):
            row = index.get(name)
            if row is None:
                row = index[name] = len(index)
                new.append(i)
            rows.append(row)
        if new:
            self._size = size = len(index)
            fresh = [rows[i] for i in new]
            if size > len(self._points):  # double, so that rows cost O(1) each
                room = max(2 * len(self._points), size, 16)
                for column in ("_points", "_keys", "_totals"):
                    old = getattr(self, column)
                    more = np.zeros((room - len(old), *old.shape[1:]), old.dtype)
                    setattr(self, column, np.concatenate([old, more]))
            self._points[fresh], self._keys[fresh] = points[new], keys[new]
        return rows

    def merge(self, other: Ledger) -> Ledger:
        """Return the ledger of both sets of rounds together; neither is changed."""
        if self.space != other.space:
            raise ParameterError(f"ledgers over {self.space!r} and {other.space!r} do not add up.")
        merged = Ledger(self.space)
        for part in (self, other):
            n = part._size
            for half in (0, 1):
                merged._add(part._points[:n], part._keys[:n], part._totals[:n, half])
        merged._rounds = self._rounds + other._rounds
        return merged

    def exact(self, *, per_node: bool = False) -> Reading:
        """Read the ledger with forecasts told apart exactly: by point, or by point and label."""
        n = self._size
        names = _bits(self._points[:n], self._keys[:n, :2] if per_node else self._keys[:n, :0])
        return self._read(names, resolution=None)

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
        cells = np.rint(self._points[: self._size] / resolution) + 0.0
        return self._read(_bits(cells, self._keys[: self._size, :0]), resolution=float(resolution))

    def _read(self, names: Integers, *, resolution: float | None) -> Reading:
        n = len(names)
        first, group = group_rows(names)
        # Bring all weights to one denominator, as long as float64 can count in it, so that whole rounds stay whole.
        parts = self._keys[:n, 2]
        common = math.lcm(*(int(p) for p in np.unique(parts) if p))
        unit = common if common * self._rounds < 2**53 else 1
        own = np.where(parts > 0, unit / np.maximum(parts, 1), unit)[:, None] * self._totals[:n].sum(axis=1)
        totals, points = np.zeros((len(first), 1 + self.space.dim)), np.zeros((len(first), self.space.dim))
        np.add.at(totals, group, own)
        if resolution is None:
            points[group] = self._points[:n]
        else:
            np.add.at(points, group, own[:, :1] * self._points[:n])
        mass = totals[:, 0]
        played = mass > 0  # a point of weight 0 was never forecast
        if resolution is not None:
            points[played] /= mass[played, None]
        outcomes = totals[played, 1:] / mass[played, None]
        return Reading(points[played], mass[played] / unit, outcomes, self._rounds, resolution)

    def error(self, distance: Distance | str = "l1", *, per_node: bool = False, total: bool = False) -> float:
        """Return the calibration error `Σ_p m_p · D(ν_p, p)`, per round unless `total`.

        Parameters
        ----------
        distance
            A norm (or its name), a squared norm, or a regularizer for its Bregman divergence.
        per_node
            Count each node of the tree by itself: the paper's labelled error, never less than the error by point alone.
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
        """Return the rows, as arrays."""
        n = self._size
        return {
            "rounds": self._rounds,
            "points": self._points[:n],
            "keys": self._keys[:n],
            "totals": self._totals[:n],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such rows."""
        self._rounds = state["rounds"]
        self._points, self._keys = np.array(state["points"]), np.array(state["keys"])
        self._totals = np.array(state["totals"])
        self._size, self._index = len(self._points), None

    def __repr__(self) -> str:
        return f"Ledger({self.space!r}: {self._rounds} rounds, {self._size} rows)"


def _bits(points: Array, keys: Integers) -> Integers:
    """Return the exact identity of each row, as integers."""
    return np.concatenate([np.ascontiguousarray(points).view(np.int64), keys], axis=1)


def _names(points: Array, keys: Integers) -> list[bytes]:
    """Return the exact identity of each row, as bytes."""
    raw = _bits(points, keys)
    width, flat = raw.shape[1] * 8, raw.tobytes()
    return [flat[i : i + width] for i in range(0, len(flat), width)]
